"""Listens to a bucket of MinIO, line by line and within bounds.

The package `minio` has a listener of its own, which cannot be stopped, connects again without a pause, and keeps every
blank that the server sends while nothing happens. What comes before is that package's: the bucket's region, the
signature, and how the server refuses.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Generator, Iterator, Sequence
from typing import TypeAlias
from xml.etree.ElementTree import ParseError

from minio import Minio
from minio.error import MinioException, S3Error
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError, ReadTimeoutError

from eventsources.base import SourceError, Stop
from sensors.actions.replies import excerpt
from sensors.secrets import Secret

SILENCE_SECONDS = 10
"""MinIO sends a blank twice a second; a server that is silent for so long is gone, or keeps things back."""
MOST_BYTES = 1 << 20
"""Of a line; what is longer is left out."""
_CHUNK = 64 << 10

Query: TypeAlias = dict[str, str | list[str] | tuple[str]]

log = logging.getLogger("eventbus.source")


class MinioListener:
    """Listens to one server."""

    def __init__(self, endpoint: str, keys: Sequence[Secret], tls: ssl.SSLContext | None, region: str) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._tls = tls
        self._region = region

    def listen(self, bucket: str, query: Query, stop: Stop) -> Generator[list[bytes]]:
        """Lines, as they come, until there is an error or no more need. Raises `SourceError`."""
        timeout = Timeout(connect=SILENCE_SECONDS, read=SILENCE_SECONDS)
        pool = PoolManager(timeout=timeout, retries=False, ssl_context=self._tls)
        try:
            yield from _lines(self._client(pool).listen(bucket, query), Pieces(bucket), stop)
        except S3Error as error:
            raise self._failure(f"{error.code}: {error.message}") from None
        except ReadTimeoutError:
            silence = f"nothing came for {SILENCE_SECONDS} s; versions since October 2025 may keep back what they tell"
            raise self._failure(silence) from None
        except (MinioException, HTTPError, ParseError, OSError, ValueError) as error:
            raise self._failure(str(error)) from None
        finally:
            pool.clear()
        if not stop.is_set():
            raise self._failure("the server has closed the connection")

    def _client(self, pool: PoolManager) -> _Client:
        access, secret = (key.reveal() for key in self._keys)
        secure = self._tls is not None
        region = self._region or None
        return _Client(self._endpoint, access, secret, secure=secure, region=region, http_client=pool)

    def _failure(self, reason: str) -> SourceError:
        return SourceError(f"MinIO at {self._endpoint}: {excerpt(reason, self._keys).rstrip('.')}")


class _Client(Minio):
    """Hands out the stream itself."""

    def listen(self, bucket: str, query: Query) -> BaseHTTPResponse:
        return self._execute("GET", bucket, query_params=query, preload_content=False)


def _lines(response: BaseHTTPResponse, pieces: Pieces, stop: Stop) -> Iterator[list[bytes]]:
    """Until it ends."""
    try:
        while not stop.is_set() and (chunk := response.read1(_CHUNK)):
            yield pieces.add(chunk)
    finally:
        response.close()


class Pieces:
    """Makes lines of what comes in pieces."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._rest = b""
        self._too_long = False

    def add(self, piece: bytes) -> list[bytes]:
        """The lines that are complete with it."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if lines and self._too_long:
            del lines[0]
            self._too_long = False
        self._rest = self._rest.lstrip()
        if self._too_long or len(self._rest) > MOST_BYTES:
            if not self._too_long:
                log.warning("a notification of `%s` that is longer than %d bytes is left out", self._bucket, MOST_BYTES)
            self._too_long = True
            self._rest = b""
        return [line for line in map(bytes.strip, lines) if line]
