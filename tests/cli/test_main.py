"""What all commands have in common: help, version, errors without tracebacks, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from eventbus.cli import main as main_module
from eventbus.cli.printing import one_line
from eventbus.errors import EventBusError, FatalError, Superseded
from eventbus.moments import duration, when
from tests.cli.conftest import Answer, Command

COMMANDS = [
    "validate",
    "run",
    "send",
    "tail",
    "explain",
    "state",
    "dlq list",
    "dlq redrive",
    "replay",
    "backtest",
    "demo",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(cli: Command, command: str) -> None:
    answer = cli(*command.split(), "--help")
    assert answer.code == 0
    assert f"$ eventbus {command}" in answer.out


def test_help_needs_no_client_and_no_models() -> None:
    heavy = "confluent_kafka pydantic prometheus_client pyparsing jsonpath_ng urllib3 yaml pyspark"
    program = f"import sys, eventbus.cli.main; print([name for name in {heavy.split()} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"


def test_version(cli: Command) -> None:
    answer = cli("--version")
    assert (answer.code, answer.out.split()[0]) == (0, "eventbus")


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(cli: Command) -> None:
    answer = cli("validat")
    assert answer.code == 2
    assert "Did you mean 'validate'?" in answer.err


@pytest.mark.parametrize(
    ("error", "code"),
    [(EventBusError("no"), 1), (FatalError("no"), 3), (Superseded("no"), 4), (KeyboardInterrupt(), 130)],
)
def test_exit_codes_follow_the_error(
    cli: Command, error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = _failing(cli, error, monkeypatch)
    assert answer == (code, "", "" if code == 130 else "error: no\n")


def test_a_bug_is_told_in_one_line(cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _failing(cli, ZeroDivisionError("oops"), monkeypatch)
    assert answer.code == 1
    assert answer.err == (
        "error: a bug in this program: ZeroDivisionError: oops. Run it with --debug and report what it says\n"
    )


def test_debugging_lets_the_error_through(orders: Path) -> None:
    orders.write_text("kind: Nothing")
    with pytest.raises(EventBusError):
        main_module.main(["--debug", "explain", str(orders), "--events", "-"])


def test_without_a_broker_the_message_says_how_to_get_one(cli: Command, orders: Path) -> None:
    answer = cli("send", "--source", "shop", "--name", "order")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "error: no broker is named and the embedded one does not run: start it with `eventbus broker start`, "
        "or name one with --bootstrap-servers or KAFKA_BOOTSTRAP_SERVERS\n"
    )


@pytest.mark.parametrize("option", ["--namespace", "--bus"])
def test_a_name_that_kafka_cannot_have_is_refused(cli: Command, option: str) -> None:
    answer = cli("tail", "events", option, "Bad_Name")
    assert answer.code == 2
    assert f"error: the {option[2:]} name `Bad_Name` is not allowed" in answer.err


def _failing(cli: Command, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Answer:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(main_module, "app", app)
    return cli()


# --- printing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(-5, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (3_660_000, "1 h 1 min"), (90_000_000, "1 d 1 h")],
)
def test_durations_are_rough(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_a_moment_that_is_not_known_is_a_dash() -> None:
    assert when(-1) == "-"
    assert when(1_700_000_000_123).endswith(".123")


def test_text_from_elsewhere_cannot_move_the_cursor() -> None:
    assert one_line("a\x1b[2Jb\nc\u202ed\u0000") == "a [2Jb c d "
