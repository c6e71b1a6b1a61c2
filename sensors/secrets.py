"""Secrets and config maps: a manifest names them, and a mounted file or an environment variable has the value.

The value is read anew whenever it is needed, so that a changed secret needs no restart, and is never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Annotated, ClassVar, Generic, NoReturn, TypeVar

from pydantic import AfterValidator, StrictBool

from eventbus.errors import ConfigError
from sensors.spec.base import SpecModel
from sensors.spec.fields import Text

MAX_BYTES = 1024 * 1024
"""What Kubernetes allows."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}")

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


class Secret:
    """A text that does not show up in logs, errors or records by accident."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be copied out of the process")


def redacted(text: str, secrets: Iterable[Secret]) -> str:
    """What somebody else has said, should they repeat a secret of ours."""
    for secret in secrets:
        text = text.replace(secret.reveal(), repr(secret)) if secret.reveal() else text
    return text


def _valid_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("must consist of letters, digits, `-`, `_` and `.`, and must not begin with `.`")
    return text


class KeySelector(SpecModel):
    """One entry of a secret or config map."""

    what: ClassVar[str]
    directory: ClassVar[tuple[str, str]]
    """The environment variable that names the directory of mounts, and its default."""
    prefix: ClassVar[str]

    name: Annotated[Text, AfterValidator(_valid_name)]
    """The secret or config map."""
    key: Annotated[Text, AfterValidator(_valid_name)]
    """The entry in it."""
    optional: StrictBool = False
    """Whether it may be missing: its value is empty then."""

    def read(self) -> Secret:
        """Raises `ConfigError`, which says where the value was looked for."""
        file = self._file()
        try:
            with file.open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return self._from_environment(file)
        except OSError as error:
            raise ConfigError(f"{self._label()} cannot be read from {file}: {error.strerror}") from None
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{self._label()} in {file} is larger than {MAX_BYTES:,} bytes")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{self._label()} in {file} is not UTF-8 text") from None
        return Secret(text.removesuffix("\n"))  # editors add one, and argo-events takes it away, too

    def _file(self) -> Path:
        variable, default = self.directory
        return Path(os.environ.get(variable, default)) / self.name / self.key

    def _from_environment(self, file: Path) -> Secret:
        variable = self.prefix + re.sub(r"[-.]", "_", f"{self.name}_{self.key}").upper()
        text = os.environ.get(variable)
        if text is None and self.optional:
            return Secret("")
        if text is None:
            raise ConfigError(
                f"{self._label()} is not there: mount it as {file}, or set the environment variable {variable}"
            )
        return Secret(text)

    def _label(self) -> str:
        return f"the key `{self.key}` of the {self.what} `{self.name}`"


class SecretKeySelector(KeySelector):
    """One entry of a secret.

    It is the file `name/key` below `EVENTBUS_SECRETS_DIR` (`/var/run/eventbus/secrets`), where Kubernetes can mount
    it, or else the environment variable `EVENTBUS_SECRET_NAME_KEY`. A changed file is noticed at the next call.
    """

    what = "secret"
    directory = ("EVENTBUS_SECRETS_DIR", "/var/run/eventbus/secrets")
    prefix = "EVENTBUS_SECRET_"


class ConfigMapKeySelector(KeySelector):
    """One entry of a config map.

    It is the file `name/key` below `EVENTBUS_CONFIG_DIR` (`/var/run/eventbus/config`), or else the environment
    variable `EVENTBUS_CONFIG_NAME_KEY`.
    """

    what = "config map"
    directory = ("EVENTBUS_CONFIG_DIR", "/var/run/eventbus/config")
    prefix = "EVENTBUS_CONFIG_"


class _Lease(Generic[Made]):
    """Something, and how many use it right now."""

    def __init__(self, made: Made) -> None:
        self.made = made
        self.users = 0


class Refreshed(Generic[Key, Made]):
    """Something that is made of secrets, such as a client, and made anew when they change. Thread-safe."""

    def __init__(self, read: Callable[[], Key], make: Callable[[Key], Made], close: Callable[[Made], None]) -> None:
        self._read = read
        self._make = make
        self._close = close
        self._lock = Lock()
        self._key = read()
        self._lease = _Lease(make(self._key))

    def get(self) -> Made:
        """For something that can be closed while it is in use. Raises `ConfigError` when a secret cannot be read."""
        with self.lent() as made:
            return made

    @contextmanager
    def lent(self) -> Iterator[Made]:
        """It is closed when it is outdated and nobody uses it any more. Raises `ConfigError` as `get` does."""
        key = self._read()
        with self._lock:
            before = self._lease
            if key != self._key:
                self._lease, self._key = _Lease(self._make(key)), key
            lease = self._lease
            lease.users += 1
            idle = before is not lease and before.users == 0
        if idle:
            self._close(before.made)
        try:
            yield lease.made
        finally:
            with self._lock:
                lease.users -= 1
                idle = lease is not self._lease and lease.users == 0
            if idle:
                self._close(lease.made)

    def close(self) -> None:
        self._close(self._lease.made)
