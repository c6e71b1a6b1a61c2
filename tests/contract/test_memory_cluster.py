"""What is particular to the log in memory: its clock, its single thread, and the tools for tests."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.clock import ManualClock
from eventbus.errors import FencedError, RetriableError
from eventbus.memory import MemoryCluster
from eventbus.memory.topics import Partition
from eventbus.ports import Commit, Output
from tests.contract.lab import Lab, settle, values


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lab(clock: ManualClock) -> Lab:
    return Lab(MemoryCluster(clock), "memory")


def test_a_transaction_is_aborted_and_its_producer_fenced_after_ten_seconds(lab: Lab, clock: ManualClock) -> None:
    topic = lab.topic()
    member = lab.member(topic)
    producer = lab.producer()
    producer.begin()
    producer.produce([Output(topic, 0, None, b"slow")])
    producer.send_offsets(topic, [Commit(0, 1, "slow")], member.consumer.group_metadata())
    clock.advance(9.9)
    with pytest.raises(RetriableError):
        member.consumer.committed([0])
    clock.advance(0.1)
    assert member.consumer.committed([0]) == {0: None}
    assert lab.read_all(topic) == []
    with pytest.raises(FencedError):
        producer.commit()


def test_records_carry_the_time_of_the_clock(lab: Lab, clock: ManualClock) -> None:
    topic = lab.topic(message_timestamp_type="LogAppendTime")
    lab.write(topic, b"a")
    clock.advance(1.5)
    lab.write(topic, b"b")
    first, second = lab.read_all(topic)
    assert first.timestamp == clock.now_ms() - 1500
    assert second.timestamp == clock.now_ms()


def test_compaction_keeps_the_latest_committed_record_of_every_key_and_all_offsets(lab: Lab) -> None:
    cluster = lab.cluster
    assert isinstance(cluster, MemoryCluster)
    topic = lab.topic(cleanup_policy="compact")
    producer = lab.producer()
    for key, value in [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)]:
        producer.begin()
        producer.produce([Output(topic, 0, key, value)])
        producer.commit()
    producer.begin()
    producer.produce([Output(topic, 0, b"a", b"aborted")])
    producer.abort()
    producer.begin()
    producer.produce([Output(topic, 0, b"a", b"open")])
    cluster.compact(topic, 0)
    producer.commit()
    assert [(r.key, r.value, r.offset) for r in lab.read_all(topic)] == [
        (b"a", b"2", 4),
        (b"b", None, 6),
        (b"a", b"open", 10),
    ]


def test_the_same_steps_have_the_same_outcome() -> None:
    def run() -> list[tuple[str, list[int]]]:
        lab = Lab(MemoryCluster(ManualClock()), "memory")
        topic = lab.topic(partitions=7)
        members = [lab.consumer(topic) for _ in range(3)]
        settle(members, lambda: [len(member.partitions) for member in members] == [3, 2, 2])
        members[1].consumer.close()
        settle([members[0], members[2]], lambda: len(members[0].partitions) + len(members[2].partitions) == 7)
        return [told for member in members for told in member.told]

    assert run() == run()


def test_a_member_expelled_while_it_gives_up_partitions_does_not_disturb_the_group(clock: ManualClock) -> None:
    lab = Lab(MemoryCluster(clock, session_timeout=6), "memory")
    topic = lab.topic(partitions=2)
    slow = lab.member(topic, partitions=2)
    quick = lab.consumer(topic)

    def dawdle(_partitions: object) -> None:
        clock.advance(4)
        quick.consumer.poll(1, 0)
        clock.advance(4)
        quick.consumer.poll(1, 0)

    slow.on_revoked = dawdle
    slow.consumer.poll(1, 0)
    assert quick.partitions == {0, 1}
    settle([slow, quick], lambda: len(slow.partitions) == len(quick.partitions) == 1)
    assert not slow.partitions & quick.partitions


def test_a_waiting_poll_ends_when_another_thread_has_written(lab: Lab) -> None:
    topic = lab.topic()
    member = lab.member(topic)
    member.start(0)
    writer = threading.Thread(target=lab.write, args=(topic, b"a"))
    writer.start()
    assert values(member.consumer.poll(10, 30)) == [b"a"]
    writer.join()


def test_many_threads_write_and_read_without_losing_anything() -> None:
    lab = Lab(MemoryCluster(), "memory")
    topic = lab.topic(partitions=4)
    member = lab.member(topic, partitions=4)
    member.start(0, 1, 2, 3)

    def write(partition: int) -> None:
        producer = lab.producer(f"producer-{partition}")
        for number in range(100):
            producer.begin()
            producer.produce([Output(topic, partition, None, b"%d" % number)])
            producer.commit()

    threads = [threading.Thread(target=write, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    received = member.receive(400)
    for thread in threads:
        thread.join()
    for partition in range(4):
        assert [r.value for r in received if r.partition == partition] == [b"%d" % number for number in range(100)]


WRITER = st.integers(0, 2)
STEP = st.one_of(
    st.tuples(st.just("append"), WRITER),
    st.tuples(st.just("commit"), WRITER),
    st.tuples(st.just("abort"), WRITER),
    st.tuples(st.just("plain"), WRITER),
)


@given(steps=st.lists(STEP, max_size=40), offset=st.integers(0, 50), max_records=st.integers(1, 5))
def test_a_partition_shows_what_is_committed_up_to_the_first_open_transaction(
    steps: list[tuple[str, int]], offset: int, max_records: int
) -> None:
    partition = Partition("t", 0)
    log: list[tuple[str, int, int]] = []
    """Per offset: what it is (a record's fate, or a marker), whose, and in which of its transactions."""
    fates: dict[tuple[int, int], str] = {}
    transactions = dict.fromkeys(range(3), 0)
    for kind, writer in steps:
        here = (writer, transactions[writer])
        if kind == "append":
            partition.append(Output("t", 0, None, b""), 0, writer)
            log.append(("record", *here))
            fates.setdefault(here, "open")
        elif kind == "plain":
            partition.append(Output("t", 0, None, b""), 0)
            log.append(("plain", *here))
        elif fates.get(here) == "open":
            partition.end_transaction(writer, commit=kind == "commit")
            log.append(("marker", *here))
            fates[here] = kind
            transactions[writer] += 1
    open_offsets = [i for i, (kind, *here) in enumerate(log) if kind == "record" and fates[here[0], here[1]] == "open"]
    stable = min(open_offsets, default=len(log))
    visible = [
        i
        for i, (kind, *here) in enumerate(log[:stable])
        if kind == "plain" or (kind == "record" and fates[here[0], here[1]] == "commit")
    ]
    assert (partition.end, partition.last_stable_offset) == (len(log), stable)
    start = min(offset, len(log))
    expected = [i for i in visible if i >= start]
    position = start
    seen: list[int] = []
    while position < stable:
        records, position = partition.read(position, max_records)
        assert len(records) <= max_records
        seen += [record.offset for record in records]
    assert seen == expected
