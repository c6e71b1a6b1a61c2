"""Runs this user's broker as a process of its own, which outlives the command that started it.

That process is this module run as a program: `python -m eventbus.broker.daemon OPTIONS`. It answers on its standard
output, once, when the broker is ready or has failed; whoever started it listens until then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from eventbus.broker import state
from eventbus.broker.errors import BrokerError
from eventbus.broker.places import KAFKA, home_directory
from eventbus.broker.service import Options, serve
from eventbus.broker.state import Instance
from eventbus.errors import ConfigError, EventBusError
from eventbus.jvm.jars import ensure_jars
from eventbus.jvm.places import explained, make_directory

STOP_SECONDS = 30.0


class Answer(msgspec.Struct, frozen=True):
    """What the process says when its broker is ready, or why it is not."""

    ready: bool
    error: str = ""
    exit_code: int = 0


def start(options: Options, warn: Callable[[str], None]) -> Instance:
    """Start a detached broker and return when it is ready. One that already runs is as good as a new one."""
    if instance := state.running_instance(warn):
        return _fitting(instance, options)
    ensure_jars(KAFKA)  # here and not in the detached process, for the progress bar
    answer = _launch(options)
    if not answer.ready:
        raise _failure(answer)
    instance = state.running_instance()
    if not instance:
        raise BrokerError(f"the broker ended right after its start; its log is {log_file()}")
    return instance


def stop(instance: Instance) -> None:
    """End a running broker and return when it is gone."""
    with suppress(ProcessLookupError):
        os.kill(instance.pid, signal.SIGTERM)
    if not state.wait_until_free(STOP_SECONDS):
        with suppress(ProcessLookupError):
            os.kill(instance.pid, signal.SIGKILL)  # its nodes end with it
        state.wait_until_free(STOP_SECONDS)


def log_file() -> Path:
    """What the detached process itself (not its nodes) has to say."""
    return home_directory() / "broker.log"


def _fitting(instance: Instance, options: Options) -> Instance:
    asked = {
        "--nodes": (options.nodes, len(instance.nodes)),
        "--ephemeral": (options.ephemeral, instance.ephemeral),
        "--port": (options.port or instance.nodes[0].port, instance.nodes[0].port),
        "--data": (str(options.data or instance.data), instance.data),
    }
    for option, (wanted, present) in asked.items():
        if wanted != present:
            raise ConfigError(
                f"a broker already runs at {instance.bootstrap_servers}, but with {option} {present} instead of "
                f"{wanted}: end it first with `eventbus broker stop`"
            )
    return instance


def _launch(options: Options) -> Answer:
    make_directory(home_directory())
    with explained(home_directory()):
        log_file().write_bytes(b"")
    receiver, sender = os.pipe()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", __name__, msgspec.json.encode(options, enc_hook=str).decode()],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, sender, 1),
            (os.POSIX_SPAWN_OPEN, 2, str(log_file()), os.O_WRONLY | os.O_APPEND, 0),
        ],
    )
    os.close(sender)
    with os.fdopen(receiver, "rb") as answers:
        try:
            answer = answers.read()
        except KeyboardInterrupt:
            os.kill(pid, signal.SIGTERM)
            raise
    return msgspec.json.decode(answer, type=Answer) if answer else Answer(ready=False)


def _failure(answer: Answer) -> EventBusError:
    if answer.exit_code == ConfigError.exit_code:
        return ConfigError(answer.error)
    return BrokerError(answer.error or f"the broker ended while it started; its log is {log_file()}")


def main(options: str) -> int:
    """Be the detached process."""
    os.setsid()
    os.chdir("/")
    try:
        serve(
            msgspec.json.decode(options, type=Options, dec_hook=lambda kind, value: kind(value)),
            ready=lambda _: _answer(Answer(ready=True)),
            warn=_note,
        )
    except EventBusError as error:
        _note(str(error))
        _answer(Answer(ready=False, error=str(error), exit_code=error.exit_code))
        return error.exit_code
    return 0


def _answer(answer: Answer) -> None:
    """Answer whoever started us, who then no longer listens."""
    with suppress(BrokenPipeError):
        os.write(1, msgspec.json.encode(answer))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _note(message: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
