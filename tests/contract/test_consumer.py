"""What a member of a group is given, and when."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from eventbus.errors import FatalError, RetriableError
from eventbus.ports import Output, Record
from tests.contract.lab import PATIENCE, Lab, offsets, settle, values, wait_for_end


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_nothing_is_delivered_before_start(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    lab.write(topic, b"early", partition=1)
    member = lab.member(topic, partitions=2)
    member.start(0)
    lab.write(topic, b"late", partition=1)
    lab.write(topic, b"started", partition=0)
    assert values(member.receive(1)) == [b"started"]
    assert member.is_silent()


def test_start_delivers_from_the_given_offset_on(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *numbered(10))
    member = lab.member(topic)
    member.start(0, offset=6)
    assert values(member.receive(4)) == numbered(10)[6:]


def test_start_may_point_at_a_marker_or_at_the_end(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, b"a", b"b")
    member = lab.member(topic)
    member.start(0, offset=2)
    assert member.is_silent()
    member.start(0, offset=3)
    assert member.is_silent()
    lab.write(topic, b"c")
    assert values(member.receive(1)) == [b"c"]


def test_start_inside_the_listener_works(lab: Lab) -> None:
    topic = lab.topic(partitions=4)
    for partition in range(4):
        lab.write(topic, b"%d" % partition, partition=partition)
    member = lab.consumer(topic)

    def start_all(partitions: Sequence[int]) -> None:
        member.start(*partitions)

    member.on_assigned = start_all
    assert sorted(values(member.receive(4))) == [b"0", b"1", b"2", b"3"]  # type: ignore[type-var]  # none is None


def test_starting_again_moves_and_forgets_what_was_fetched(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *numbered(1000))
    member = lab.member(topic)
    for offset in (0, 500, 3, 990, 0, 0):
        member.start(0, offset=offset)
        assert member.receive(2, max_records=2) == member_view(lab, topic, offset, 2)


def member_view(lab: Lab, topic: str, offset: int, count: int) -> list[object]:
    return list(lab.read_all(topic)[offset : offset + count])


def test_stop_silences_until_the_next_start(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *numbered(100))
    member = lab.member(topic)
    member.start(0)
    member.receive(5, max_records=5)
    member.consumer.stop(0)
    assert member.is_silent()
    member.consumer.resume([0])
    assert member.is_silent()
    member.start(0, offset=2)
    assert offsets(member.receive(3, max_records=3)) == [2, 3, 4]


def test_resume_goes_on_where_pause_has_stopped(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    lab.write(topic, *numbered(100), partition=0)
    member = lab.member(topic, partitions=2)
    member.start(0, 1)
    assert values(member.receive(10, max_records=10)) == numbered(100)[:10]
    member.consumer.pause([0])
    assert member.is_silent()
    lab.write(topic, b"other", partition=1)
    assert values(member.receive(1)) == [b"other"]
    member.consumer.resume([0])
    assert values(member.receive(90)) == numbered(100)[10:]


def test_pausing_before_the_first_record_loses_nothing(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *numbered(5))
    member = lab.member(topic)
    member.start(0, offset=1)
    member.consumer.pause([0])
    assert member.is_silent()
    member.consumer.resume([0])
    assert values(member.receive(4)) == numbered(5)[1:]


def test_what_is_not_started_can_neither_be_paused_nor_resumed(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, b"a")
    member = lab.member(topic)
    member.consumer.pause([0])
    member.consumer.resume([0])
    assert member.is_silent()


def test_what_is_not_assigned_cannot_be_started(lab: Lab) -> None:
    with pytest.raises(FatalError):
        lab.member(lab.topic()).consumer.start(5, 0)


def test_poll_returns_no_more_than_asked_for(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    lab.write(topic, *numbered(50), partition=0)
    lab.write(topic, *numbered(50), partition=1)
    member = lab.member(topic, partitions=2)
    member.start(0, 1)
    received: list[Record] = []
    deadline = time.monotonic() + PATIENCE
    while len(received) < 100:
        assert time.monotonic() < deadline
        batch = member.consumer.poll(7, 0.2)
        assert len(batch) <= 7
        received += batch
    for partition in (0, 1):
        assert [r.value for r in received if r.partition == partition] == numbered(50)


def test_poll_does_not_wait_for_more_once_there_is_something(lab: Lab) -> None:
    topic = lab.topic()
    member = lab.member(topic)
    member.start(0)
    lab.write(topic, b"a")
    began = time.monotonic()
    assert values(member.consumer.poll(1000, PATIENCE)) == [b"a"]
    assert time.monotonic() - began < PATIENCE / 2


def test_poll_without_a_timeout_returns_at_once(lab: Lab) -> None:
    member = lab.member(lab.topic())
    member.start(0)
    began = time.monotonic()
    assert not member.consumer.poll(1000, 0)
    assert time.monotonic() - began < 1


def test_the_position_passes_what_is_no_record(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, b"a")
    lab.writer.begin()
    lab.writer.produce([Output(topic, 0, None, b"aborted")])
    wait_for_end(lab, topic, 3)
    lab.writer.abort()
    member = lab.member(topic)
    member.start(0)
    assert member.consumer.position(0) == 0
    member.receive(1)
    assert 1 <= member.consumer.position(0) <= 4
    settle([member], lambda: member.consumer.position(0) == 4)
    assert member.consumer.offsets(0) == (0, 4)


def test_the_position_follows_start_and_survives_pause(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *numbered(10))
    member = lab.member(topic)
    member.start(0)
    member.receive(10)
    settle([member], lambda: member.consumer.position(0) == 11)
    member.start(0, offset=4)
    assert member.consumer.position(0) == 4
    member.receive(2, max_records=2)
    member.consumer.pause([0])
    assert member.consumer.position(0) == 6


def test_offsets_count_open_transactions(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, b"a")
    member = lab.member(topic)
    lab.writer.begin()
    lab.writer.produce([Output(topic, 0, None, b"open")])
    wait_for_end(lab, topic, 3)
    assert member.consumer.offsets(0) == (0, 3)
    lab.writer.abort()


def test_an_offset_that_does_not_exist_is_fatal_and_named(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, b"a")
    member = lab.member(topic)
    member.start(0, offset=1000)
    with pytest.raises(FatalError, match=rf"{topic}/0 has no offset 1000"):
        member.receive(1)


def test_an_offset_that_was_removed_is_fatal(lab: Lab, request: pytest.FixtureRequest) -> None:
    topic = lab.topic()
    lab.write(topic, *numbered(10))
    remove_before(lab, topic, 5, request)
    member = lab.member(topic)
    assert member.consumer.offsets(0) == (5, 11)
    member.start(0, offset=4)
    with pytest.raises(FatalError, match=rf"{topic}/0 has no offset 4"):
        member.receive(1)


def test_what_a_listener_raises_comes_out_of_poll_and_costs_no_records(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *numbered(10))
    member = lab.consumer(topic)

    def start_and_fail(partitions: Sequence[int]) -> None:
        member.start(*partitions)
        raise LookupError("from the listener")

    member.on_assigned = start_and_fail
    with pytest.raises(LookupError, match="from the listener"):
        member.receive(1)
    assert values(member.receive(10)) == numbered(10)


def test_a_topic_that_does_not_exist_is_worth_another_try(lab: Lab) -> None:
    member = lab.consumer(lab.name("missing"))
    with pytest.raises(RetriableError, match="missing"):
        member.receive(1)


@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_keys_values_and_headers_come_back_byte_by_byte(lab: Lab, key: bytes | None, value: bytes | None) -> None:
    topic = lab.topic()
    headers = [
        ("null", None),
        ("empty", b""),
        ("text", b"t"),
        ("bytes", b"\x00\xff\xfe"),
        ("naïve", b"n"),
        ("text", b"2"),
    ]
    lab.writer.begin()
    lab.writer.produce([Output(topic, 0, key, value, headers), Output(topic, 0, key, value)])
    lab.writer.commit()
    member = lab.member(topic)
    member.start(0)
    with_headers, without = member.receive(2)
    assert (with_headers.key, with_headers.value, list(with_headers.headers)) == (key, value, headers)
    assert (without.key, without.value, list(without.headers)) == (key, value, [])
    assert (with_headers.topic, with_headers.partition, with_headers.offset) == (topic, 0, 0)


def remove_before(lab: Lab, topic: str, offset: int, request: pytest.FixtureRequest) -> None:
    """What retention does, at a moment of our choosing."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    from eventbus.memory import MemoryCluster

    if isinstance(lab.cluster, MemoryCluster):
        lab.cluster.truncate(topic, 0, offset)
    else:
        admin = AdminClient({"bootstrap.servers": request.getfixturevalue("kafka_bootstrap_servers")})
        for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(PATIENCE)
