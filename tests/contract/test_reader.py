"""Reading partitions without a group."""

from __future__ import annotations

import pytest

from eventbus.errors import FatalError, LogError
from eventbus.ports import Output
from tests.contract.lab import QUIET, Lab, offsets, read_to, values, wait_for_end


def test_the_position_reaches_the_end_even_if_nothing_but_markers_is_left(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, b"a")
    lab.writer.begin()
    lab.writer.produce([Output(topic, 0, None, b"aborted")])
    wait_for_end(lab, topic, 3)
    lab.writer.abort()
    wait_for_end(lab, topic, 4)
    reader = lab.reader()
    assert reader.offsets(topic, 0) == (0, 4)
    reader.open(topic, 0, 0)
    assert reader.position(topic, 0) == 0
    assert values(read_to(reader, topic, 0, 4)) == [b"a"]
    assert reader.position(topic, 0) == 4


def test_an_empty_partition_is_read_at_once(lab: Lab) -> None:
    topic = lab.topic()
    reader = lab.reader()
    assert reader.offsets(topic, 0) == (0, 0)
    reader.open(topic, 0, 0)
    assert reader.position(topic, 0) == 0


def test_an_open_transaction_counts_for_the_offsets_and_holds_up_the_position(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, b"a")
    open_ended = lab.producer("open")
    open_ended.begin()
    open_ended.produce([Output(topic, 0, None, b"b")])
    wait_for_end(lab, topic, 3)
    reader = lab.reader()
    assert reader.offsets(topic, 0) == (0, 3)
    reader.open(topic, 0, 0)
    assert values(read_to(reader, topic, 0, 2)) == [b"a"]
    assert reader.read(10, QUIET) == []
    assert reader.position(topic, 0) == 2
    open_ended.commit()
    assert values(read_to(reader, topic, 0, 4)) == [b"b"]


def test_reading_goes_on_with_what_is_written_later(lab: Lab) -> None:
    topic = lab.topic()
    reader = lab.reader()
    reader.open(topic, 0, 0)
    assert reader.read(10, 0) == []
    lab.write(topic, b"a")
    assert values(read_to(reader, topic, 0, 2)) == [b"a"]
    lab.write(topic, b"b")
    assert values(read_to(reader, topic, 0, 4)) == [b"b"]


def test_several_partitions_are_read_together_and_closed_one_by_one(lab: Lab) -> None:
    one, other = lab.topic(partitions=2), lab.topic()
    lab.write(one, b"one", partition=1)
    lab.write(other, b"other")
    reader = lab.reader()
    reader.open(one, 1, 0)
    reader.open(other, 0, 0)
    records = read_to(reader, one, 1, 2) + read_to(reader, other, 0, 2)
    assert sorted((record.topic, record.partition, record.value) for record in records) == sorted(
        [(one, 1, b"one"), (other, 0, b"other")]
    )
    reader.close(one, 1)
    lab.write(one, b"unread", partition=1)
    lab.write(other, b"read")
    assert values(read_to(reader, other, 0, 4)) == [b"read"]
    assert reader.read(10, QUIET) == []


def test_a_partition_can_be_opened_again_elsewhere(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *(b"%d" % number for number in range(100)))
    reader = lab.reader()
    for first in (0, 90, 3, 99):
        reader.open(topic, 0, first)
        assert offsets(read_to(reader, topic, 0, 101)) == list(range(first, 100))


def test_closing_what_is_not_open_does_nothing(lab: Lab) -> None:
    reader = lab.reader()
    reader.close(lab.topic(), 0)


def test_no_more_is_read_than_asked_for(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *(b"%d" % number for number in range(10)))
    reader = lab.reader()
    reader.open(topic, 0, 0)
    read: list[int] = []
    while len(read) < 10:
        batch = reader.read(3, 1)
        assert len(batch) <= 3
        read += offsets(batch)
        assert len(read) <= reader.position(topic, 0)
        assert len(read) == 10 or reader.position(topic, 0) == len(read)
    assert read == list(range(10))


def test_an_offset_that_does_not_exist_is_fatal_and_named(lab: Lab) -> None:
    topic = lab.topic()
    reader = lab.reader()
    reader.open(topic, 0, 1000)
    with pytest.raises(FatalError, match=rf"{topic}/0 has no offset 1000"):
        read_to(reader, topic, 0, 1001)


def test_offsets_of_what_does_not_exist_are_an_error(lab: Lab) -> None:
    with pytest.raises(LogError, match="missing"):
        lab.reader().offsets(lab.name("missing"), 0)


def _write_later(lab: Lab, topic: str, value: bytes, than: int) -> int:
    """Write a record with a timestamp that is later; returns it."""
    while (newest := lab.read_all(topic)[-1:]) == [] or newest[0].timestamp <= than:
        lab.write(topic, value)
    return newest[0].timestamp


def test_reading_can_begin_at_a_time(lab: Lab) -> None:
    topic = lab.topic(message_timestamp_type="LogAppendTime")
    first = _write_later(lab, topic, b"a", than=0)
    second = _write_later(lab, topic, b"b", than=first)
    reader = lab.reader()
    _, end = reader.offsets(topic, 0)
    for timestamp, expected in ((0, b"a"), (first, b"a"), (first + 1, b"b"), (second, b"b"), (second + 1, None)):
        reader.open(topic, 0, reader.offset_at(topic, 0, timestamp))
        assert values(read_to(reader, topic, 0, end))[:1] == ([] if expected is None else [expected])


def test_a_time_does_not_lead_past_an_open_transaction(lab: Lab) -> None:
    topic = lab.topic()
    open_ended = lab.producer("open")
    open_ended.begin()
    open_ended.produce([Output(topic, 0, None, b"a")])
    wait_for_end(lab, topic, 1)
    assert lab.reader().offset_at(topic, 0, 2**42) == 0
    open_ended.commit()


def test_an_empty_partition_has_an_offset_for_every_time(lab: Lab) -> None:
    topic = lab.topic()
    assert [lab.reader().offset_at(topic, 0, timestamp) for timestamp in (0, 2**42)] == [0, 0]
