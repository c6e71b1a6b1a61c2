"""Single records outside transactions."""

from __future__ import annotations

import pytest

from eventbus.errors import LogError, UnproducibleError
from eventbus.ports import Output, Position
from tests.contract.lab import PATIENCE, Lab, values


class Outcomes:
    """What became of the records, in the order in which it was told."""

    def __init__(self) -> None:
        self.errors: list[LogError] = []
        self.positions: list[Position] = []

    def __call__(self, error: LogError | None, position: Position | None) -> None:
        if error is not None:
            self.errors.append(error)
        if position is not None:
            self.positions.append(position)


def test_every_record_is_written_and_its_position_told(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    publisher = lab.publisher()
    outcomes = Outcomes()
    for number in range(100):
        publisher.send(Output(topic, number % 2, b"key", b"%d" % number, [("h", b"v")]), outcomes)
    assert publisher.flush(PATIENCE) == 0
    assert not outcomes.errors
    assert sorted((p.topic, p.partition, p.offset) for p in outcomes.positions) == sorted(
        (topic, partition, offset) for partition in (0, 1) for offset in range(50)
    )
    assert values(lab.read_all(topic, 1)) == [b"%d" % number for number in range(1, 100, 2)]
    assert list(lab.read_all(topic, 1)[0].headers) == [("h", b"v")]


def test_nothing_is_told_before_flush_or_another_send(lab: Lab) -> None:
    publisher = lab.publisher()
    outcomes = Outcomes()
    publisher.send(Output(lab.topic(), 0, None, b"a"), outcomes)
    assert publisher.flush(PATIENCE) == 0
    assert len(outcomes.positions) == 1
    assert publisher.flush(PATIENCE) == 0
    assert len(outcomes.positions) == 1


def test_a_record_too_large_for_the_client_is_refused_at_once(lab: Lab) -> None:
    with pytest.raises(UnproducibleError):
        lab.publisher().send(Output(lab.topic(), 0, None, b"x" * 20_000_000), Outcomes())


def test_a_refusal_by_the_log_is_told(lab: Lab) -> None:
    topic = lab.topic(max_message_bytes="2000")
    publisher = lab.publisher()
    outcomes = Outcomes()
    publisher.send(Output(topic, 0, None, b"x" * 3000), outcomes)
    publisher.flush(PATIENCE)
    publisher.send(Output(topic, 0, None, b"small"), outcomes)
    publisher.flush(PATIENCE)
    assert [type(error) for error in outcomes.errors] == [UnproducibleError]
    assert values(lab.read_all(topic)) == [b"small"]


def test_a_partition_that_does_not_exist_is_told(lab: Lab) -> None:
    topic = lab.topic()
    publisher = lab.publisher()
    outcomes = Outcomes()
    try:
        publisher.send(Output(topic, 3, None, b"a"), outcomes)
        publisher.flush(PATIENCE)
    except UnproducibleError as error:
        outcomes(error, None)
    assert [type(error) for error in outcomes.errors] == [UnproducibleError]
