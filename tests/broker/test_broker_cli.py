"""What `eventbus broker` answers when no broker runs or none can be started."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eventbus.broker import state
from eventbus.cli.broker import app
from eventbus.errors import ConfigError, EventBusError

cli = CliRunner()


def test_status_tells_programs_and_people_that_nothing_runs() -> None:
    for_programs = cli.invoke(app, ["status", "--output", "json"])
    assert for_programs.exit_code == 1
    assert json.loads(for_programs.stdout) == {"running": False}
    for_people = cli.invoke(app, ["status"])
    assert for_people.exit_code == 1
    assert "eventbus broker start" in for_people.stdout


def test_there_may_be_nothing_to_stop() -> None:
    answer = cli.invoke(app, ["stop"])
    assert answer.exit_code == 0
    assert answer.stdout == "no broker runs\n"


def test_a_broker_that_is_just_being_started_cannot_be_stopped_yet() -> None:
    with state.claimed():
        answer = cli.invoke(app, ["stop"])
    assert isinstance(answer.exception, EventBusError)
    assert "try again in a moment" in str(answer.exception)


def test_a_background_broker_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_JAVA", str(tmp_path / "nowhere"))
    failed = cli.invoke(app, ["start"])
    assert isinstance(failed.exception, ConfigError)
    assert "nowhere, which is not a Java" in str(failed.exception)
    assert not state.is_claimed()


def test_a_background_broker_on_a_taken_port_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        failed = cli.invoke(app, ["start", "--ephemeral", "--port", str(port)])
    assert isinstance(failed.exception, ConfigError)
    assert f"port {port} is taken" in str(failed.exception)


@pytest.mark.parametrize("command", ["run", "start", "stop", "status"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    answer = cli.invoke(app, [command, "--help"])
    assert answer.exit_code == 0
    assert f"eventbus broker {command}" in answer.stdout
