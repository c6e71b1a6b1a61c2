"""`eventbus backtest`: what is refused before a Spark is started. The rest is in tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus import Bus
from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--since", "yesterday"], "--since yesterday: write how long ago, such as 90m or 24h, or a time such as "),
        (["--fail-on-change"], "--fail-on-change compares with an older version: name it with --against"),
        (
            ["--export", "/nowhere/expected.jsonl"],
            "--export /nowhere/expected.jsonl: a file in a directory that exists",
        ),
        (["--against", "/nowhere/old.yaml"], "/nowhere/old.yaml"),
        ([], "no broker is named and the embedded one does not run"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Command, orders: Path, options: list[str], message: str) -> None:
    answer = cli("backtest", orders, *options)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert message in answer.err


@pytest.mark.parametrize("command", ["audit", "backtest"])
def test_a_time_that_ends_before_it_begins_is_refused(cli: Command, orders: Path, command: str) -> None:
    answer = cli(command, orders, "--since", "1h", "--until", "2h")
    assert (answer.code, answer.out, answer.err) == (2, "", "error: --until must be later than --since\n")


@pytest.mark.kafka
def test_a_past_that_is_not_there_is_named(cli: Command, on_kafka: list[str], orders: Path) -> None:
    namespace = on_kafka[3]
    answer = cli("backtest", orders, *on_kafka)
    gone = f"error: the topic `{namespace}-default` does not exist: nothing was sent there\n"
    assert (answer.code, answer.err) == (2, gone)
    with Bus.connect(on_kafka[1], namespace=namespace) as bus:
        bus.ensure(1)
    answer = cli("backtest", orders, "--from", "triggers", *on_kafka)
    assert answer.code == 2
    assert answer.err.endswith(f"does not exist: the sensor {namespace}/default/orders has never run here\n")
