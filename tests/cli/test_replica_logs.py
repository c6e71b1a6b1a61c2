"""What is known of a replica from its log lines alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from eventbus import Bus
from eventbus.cli.logs import LogFormat, set_up_logging
from eventbus.clock import SystemClock
from eventbus.errors import AbortableError, LogError, UnknownOutcome
from eventbus.memory.producer import MemoryProducer
from sensors.audit.invocations import Mishap
from sensors.replicalogs import last_words, own_mishaps
from tests.pipeline.world import World

SLOT = 7


@pytest.mark.parametrize(
    "case",
    [
        ("invoke", UnknownOutcome("the answer was lost"), ["transaction aborted, restoring"]),
        ("invoke", AbortableError("refused"), []),  # what it knows is written with the next transaction
        ("join", UnknownOutcome("the answer was lost"), []),
    ],
)
def test_a_replica_tells_when_it_forgets_what_it_has_invoked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    case: tuple[str, LogError, list[str]],
) -> None:
    stage, error, mishaps = case
    set_up_logging(logging.INFO, LogFormat.JSON)
    commit, failures = MemoryProducer.commit, [error]

    def fail_once(producer: MemoryProducer) -> None:
        if f"-{stage}-" in producer._id and world.calls and failures:
            raise failures.pop()
        commit(producer)

    with World(Bus.memory()) as world:
        replica = world.start(world.sensor(both="a && b"), slot=str(SLOT))
        monkeypatch.setattr(MemoryProducer, "commit", fail_once)
        published = SystemClock().now_ms()
        world.publish("ab")
        world.wait_for_calls(1)
        world.publish("ab", "f")
        replica.settle()
    assert not failures
    log = tmp_path / "replica.log"
    log.write_text(capsys.readouterr().err)
    found = list(own_mishaps(SLOT, log))
    assert [mishap.name for mishap in found] == mishaps
    for mishap in found:
        assert mishap.replica == str(SLOT)
        assert published <= mishap.ended <= SystemClock().now_ms()
        assert mishap.began <= mishap.ended, "it forgets the whole turn, not only its end"
    assert not list(own_mishaps(SLOT + 1, log))


def test_lines_that_are_no_objects_are_passed_over_and_the_last_one_is_told(tmp_path: Path) -> None:
    log = tmp_path / "replica.log"
    log.write_text("")
    assert last_words(log) == "no output"
    line = '{"time": "1970-01-01T00:00:09.000+00:00", "message": "ns-bus-s-invoke-0: partitions lost: 1, 2"}\n'
    log.write_text(f"{line[:40]}\n{line}")
    assert [mishap.name for mishap in own_mishaps(0, log)] == ["partitions lost"]
    assert last_words(log) == "ns-bus-s-invoke-0: partitions lost: 1, 2"
    log.write_text(f"{line}rdkafka_txnmgr.c: Assertion failed\n")
    assert last_words(log) == "rdkafka_txnmgr.c: Assertion failed"


def test_what_a_long_turn_has_learnt_is_forgotten_from_its_beginning(tmp_path: Path) -> None:
    """A client that hangs is given up after seconds; what was called just before is explained by that."""
    log = tmp_path / "replica.log"
    message = "ns-bus-s-invoke-0: transaction aborted, restoring: the client hangs"
    log.write_text(f'{{"time": "1970-01-01T00:00:20.000+00:00", "message": "{message}", "forgotten_seconds": 12.5}}')
    assert list(own_mishaps(0, log)) == [Mishap("0", 7_500, 20_000, "transaction aborted, restoring")]
