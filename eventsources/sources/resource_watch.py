"""Objects of the Kubernetes API, listed in pages and watched from a version on.

A watch is read in a thread of its own, because nothing else can be done while a socket waits. It reads only a little
ahead: what is not taken from it stays with the API server. Nothing is repeated here: what has failed is the runner's to
begin again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import urlencode

import msgspec
import urllib3

from eventbus.kubeaccess import connection_pools, credentials, load_configuration, one_line
from eventsources.base import SourceError

Object: TypeAlias = dict[str, Any]
Told: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

_PAGE = 100
_MOST_AHEAD = 500
_MOST_BYTES_AHEAD = 16 << 20
_LONGEST_LINE = 64 << 20
"""No object of a cluster is nearly as large."""
_CONNECT_SECONDS = 10.0
_WATCH_SECONDS = 120
"""Then the API server ends a watch, having said up to which version nothing has happened. So the version never gets
old while somebody watches, and a connection that is dead without anybody having said so is noticed."""
_READ_SECONDS = _WATCH_SECONDS + 30.0


class Expired(Exception):
    """The API server does not remember any more what came after that version: list all objects."""


class Ended(Exception):
    """The API server ends every watch after a while."""


class Page(NamedTuple):
    objects: list[Object]
    version: str
    """Of all pages of a list."""


class Line(NamedTuple):
    """One line of a watch."""

    type: Told
    object: Object


class Collection:
    """The objects of one kind, as far as selectors want them.

    Raises `ConfigError` when it is not known how to reach a cluster.
    """

    def __init__(self, path: str, selectors: Mapping[str, str]) -> None:
        self._configuration = load_configuration("event sources of the kind `resource`")
        self._pools = connection_pools(self._configuration)
        self._path = path
        self._selectors = {name: value for name, value in selectors.items() if value}

    def close(self) -> None:
        self._pools.clear()

    def pages(self) -> Iterator[Page]:
        """All objects, as they were at one version. Raises `Expired` when that takes too long, and `SourceError`."""
        token = ""
        while True:
            with self._answer({"limit": str(_PAGE), "continue": token}) as response:
                document = _document(response)
            metadata = document.get("metadata") or {}
            yield Page(document.get("items") or [], str(metadata.get("resourceVersion", "")))
            token = metadata.get("continue") or ""
            if not token:
                return

    @contextmanager
    def watch(self, version: str) -> Iterator[Watch]:
        """What happens after this version. Raises `Expired` and `SourceError`."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        with self._answer({**query, "resourceVersion": version}) as response:
            watch = Watch(response)
            try:
                yield watch
            finally:
                watch.close()

    @contextmanager
    def _answer(self, query: Mapping[str, str]) -> Iterator[urllib3.BaseHTTPResponse]:
        wanted = {**self._selectors, **{name: value for name, value in query.items() if value}}
        headers = {"Accept": "application/json", "User-Agent": "kafka-eventbus"}
        try:
            response = self._pools.request(
                "GET",
                f"{self._configuration.host.rstrip('/')}{self._path}?{urlencode(wanted)}",
                headers={**headers, **credentials(self._configuration)},
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except Exception as error:  # also whatever a helper that fetches a new token may raise
            raise SourceError(f"the cluster: {one_line(error)}") from None
        try:
            if response.status != 200:
                raise _failure(response.status, _document(response))
            yield response
        finally:
            response.close()


class Watch:
    """A stream of lines that is read ahead of who takes them."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._lines: deque[tuple[Line, int]] = deque()
        self._bytes = 0
        self._end: Exception | None = None
        self._closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._read, name="resource-watch", daemon=True)
        self._thread.start()

    def take(self, seconds: float) -> list[Line]:
        """What is there, after a while at most. After the last line it raises `Ended`, `Expired` or `SourceError`."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._end, seconds)
            if not self._lines and self._end is not None:
                raise self._end
            lines = [line for line, _ in self._lines]
            self._lines.clear()
            self._bytes = 0
            self._changed.notify_all()
            return lines

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(OSError, RuntimeError, ValueError):  # of a stream that has ended, or broken off
            self._response.shutdown()
        self._thread.join()

    def _read(self) -> None:
        end: Exception = Ended()
        try:
            for text in _lines_of(self._response):
                if not self._offer(_line(text), len(text)):
                    break
        except (Expired, SourceError) as error:
            end = error
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            end = SourceError(f"the cluster: {one_line(error)}")
        with self._changed:
            self._end = end
            self._changed.notify_all()

    def _offer(self, line: Line, size: int) -> bool:
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._lines.append((line, size))
            self._bytes += size
            self._changed.notify_all()
            return not self._closed

    def _has_room(self) -> bool:
        return self._closed or (len(self._lines) < _MOST_AHEAD and self._bytes < _MOST_BYTES_AHEAD)


def _lines_of(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line.strip())
        if len(rest) > _LONGEST_LINE:
            raise SourceError("the cluster tells of an object that is too large to be one")


def _line(text: bytes) -> Line:
    try:
        document = msgspec.json.decode(text)
        type, found = document["type"], document["object"]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise SourceError("the cluster's watch says something that is not JSON as it should be") from None
    if type == "ERROR":
        raise _failure(int(found.get("code") or 0), found)
    return Line(cast("Told", type), found)


def _document(response: urllib3.BaseHTTPResponse) -> Object:
    try:
        document = msgspec.json.decode(response.read())
    except msgspec.DecodeError:
        document = None
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise SourceError(f"the cluster: {one_line(error)}") from None
    if not isinstance(document, dict):
        if response.status == 200:
            raise SourceError("the cluster's answer is not JSON")
        return {}
    return document


def _failure(code: int, status: Object) -> Exception:
    """The version is too old for the API server; or too new, when its data was restored from an older copy."""
    causes = (status.get("details") or {}).get("causes") or ()
    if code == 410 or any(each.get("reason") == "ResourceVersionTooLarge" for each in causes):
        return Expired()
    words = f"{code} {status.get('reason') or ''}: {status.get('message') or ''}"
    return SourceError(f"the cluster answered {one_line(ValueError(words)).rstrip(': ')}")
