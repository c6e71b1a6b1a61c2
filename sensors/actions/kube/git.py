"""One file of a git repository, read with the `git` command: no shell, prompt, hooks, or foreign configuration."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from eventbus.errors import ConfigError
from sensors.actions.base import ActionError
from sensors.actions.kube.github import USER, installation_token
from sensors.actions.kube.source import GitSource
from sensors.actions.tls import Tls, TlsSecrets

_LOCKS: dict[str, Lock] = {}
"""One for each directory that is kept: git does not let two fetch into the same at a time."""
_MAX_COMPLAINT = 300
_TOKEN_SECONDS = 30
_ASKPASS = """#!/bin/sh
case "$1" in Username*) printf '%s\\n' "$EVENTBUS_GIT_USERNAME";; *) printf '%s\\n' "$EVENTBUS_GIT_PASSWORD";; esac
"""


def read_from_git(source: GitSource, max_bytes: int, timeout: float) -> bytes:
    """At most one byte more than `max_bytes` of the file. Raises `ConfigError` and `ActionError`."""
    with _directory(source) as folder, tempfile.TemporaryDirectory() as private:
        git = _Git(folder, _environment(source, Path(private)), timeout)
        git.run("init", "--quiet", "--bare", ".")
        (folder / "shallow.lock").unlink(missing_ok=True)  # of a fetch that was killed; we are alone here
        git.run("fetch", "--quiet", "--depth=1", "--no-tags", "--force", source.address, source.wanted)
        entry = git.run("ls-tree", "-l", "FETCH_HEAD", "--", source.filePath).split()
        if len(entry) < 4 or entry[1] != b"blob" or entry[0] == b"120000":
            what = "is a symbolic link" if entry and entry[0] == b"120000" else "is no file of the repository"
            raise ActionError(f"`{source.filePath}` {what} at `{source.wanted}`", retriable=False, sent=False)
        if int(entry[3]) > max_bytes:
            raise ActionError(f"`{source.filePath}` is larger than {max_bytes:,} bytes", retriable=False, sent=False)
        return git.run("cat-file", "blob", entry[2].decode())


class _Git:
    def __init__(self, folder: Path, environment: Mapping[str, str], timeout: float) -> None:
        self._folder = folder
        self._environment = environment
        self._timeout = timeout

    def run(self, *arguments: str) -> bytes:
        settings = ("core.hooksPath=/dev/null", "protocol.ext.allow=never", "http.followRedirects=false")
        command: Sequence[str] = ("git", *(part for each in settings for part in ("-c", each)), *arguments)
        try:
            done = subprocess.run(
                command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout,
                check=False,
            )
        except FileNotFoundError:
            raise ConfigError("the `git` command is not installed, and a `git` source needs it") from None
        except subprocess.TimeoutExpired:
            reason = f"no end within {self._timeout:g} s"
        else:
            if done.returncode == 0:
                return done.stdout
            reason = " ".join(done.stderr.decode(errors="replace").split())[:_MAX_COMPLAINT]
        raise ActionError(f"git {arguments[0]} failed: {reason}", retriable=True, sent=False)


@contextmanager
def _directory(source: GitSource) -> Iterator[Path]:
    """The one to keep, if there is one, for us alone; or one that is gone afterwards."""
    if not source.cloneDirectory:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
        return
    with _LOCKS.setdefault(source.cloneDirectory, Lock()):
        folder = Path(source.cloneDirectory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"`cloneDirectory: {source.cloneDirectory}` cannot be used: {error.strerror}") from None
        yield folder


def _environment(source: GitSource, private: Path) -> dict[str, str]:
    """Nothing of the user's configuration, which could run programs. Secrets go by environment or a private file."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(private),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    who = _name_and_password(source, private)
    if who is not None:
        helper = _private_file(private / "askpass", _ASKPASS, 0o700)
        environment["GIT_ASKPASS"] = str(helper)
        environment["EVENTBUS_GIT_USERNAME"], environment["EVENTBUS_GIT_PASSWORD"] = who
    ssh = ["ssh", "-oBatchMode=yes"]
    if source.sshKeySecret is not None:
        key = _private_file(private / "key", source.sshKeySecret.read().reveal() + "\n", 0o600)
        ssh += ["-i", str(key), "-oIdentitiesOnly=yes"]
    if source.insecureIgnoreHostKey:
        ssh += ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"]
    else:
        known = Path("~/.ssh/known_hosts").expanduser()
        ssh += ["-oStrictHostKeyChecking=yes", f"-oUserKnownHostsFile={known} /etc/ssh/ssh_known_hosts"]
    environment["GIT_SSH_COMMAND"] = shlex.join(ssh)  # git gives it to a shell; nothing in it comes from an event
    return environment


def _name_and_password(source: GitSource, private: Path) -> tuple[str, str] | None:
    if source.creds is not None:
        return source.creds.username.read().reveal(), source.creds.password.read().reveal()
    if source.githubApp is None:
        return None
    from sensors.actions.http_client import HttpClient  # noqa: PLC0415 - only who calls servers pays for urllib3

    key = _private_file(private / "app.pem", source.githubApp.privateKey.read().reveal() + "\n", 0o600)
    client = HttpClient(_TOKEN_SECONDS, Tls().context(TlsSecrets()))
    try:
        return USER, installation_token(client, source.githubApp, source.url, key)
    finally:
        client.close()


def _private_file(path: Path, text: str, mode: int) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    return path
