"""What a transaction promises, and how it ends."""

from __future__ import annotations

import time

import pytest

from eventbus.errors import AbortableError, FencedError, UnproducibleError
from eventbus.ports import Output, TransactionalProducer
from eventbus.topics import EVENT_BYTES, INTERNAL_BYTES
from tests.contract.lab import QUIET, Lab, offsets, read_to, values, wait_for_end


def attempt(producer: TransactionalProducer, *outputs: Output) -> None:
    producer.begin()
    producer.produce(outputs)
    producer.commit()


def test_records_are_visible_only_after_the_commit_and_then_all_of_them(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    producer = lab.producer()
    reader = lab.reader()
    reader.open(topic, 0, 0)
    reader.open(topic, 1, 0)
    producer.begin()
    producer.produce([Output(topic, 0, b"k", b"a"), Output(topic, 1, b"k", b"b")])
    producer.produce([Output(topic, 0, b"k", b"c")])
    assert reader.read(10, QUIET) == []
    producer.commit()
    assert values(read_to(reader, topic, 0, 3) + read_to(reader, topic, 1, 2)) in (
        [b"a", b"c", b"b"],
        [b"b", b"a", b"c"],
    )


def test_records_of_an_aborted_transaction_are_never_visible(lab: Lab) -> None:
    topic = lab.topic()
    producer = lab.producer()
    producer.begin()
    producer.produce([Output(topic, 0, None, b"never")])
    producer.abort()
    attempt(producer, Output(topic, 0, None, b"seen"))
    assert values(lab.read_all(topic)) == [b"seen"]


def test_a_transaction_without_records_can_be_committed_and_aborted(lab: Lab) -> None:
    producer = lab.producer()
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()


def test_markers_take_offsets(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, b"a", b"b")
    lab.write(topic, b"c")
    assert offsets(lab.read_all(topic)) == [0, 1, 3]
    wait_for_end(lab, topic, 5)
    assert lab.reader().offsets(topic, 0) == (0, 5)


def test_a_record_behind_an_open_transaction_waits_for_its_end(lab: Lab) -> None:
    topic = lab.topic()
    slow = lab.producer("slow")
    slow.begin()
    slow.produce([Output(topic, 0, None, b"slow")])
    wait_for_end(lab, topic, 1)
    lab.write(topic, b"quick")
    reader = lab.reader()
    reader.open(topic, 0, 0)
    assert reader.read(10, QUIET) == []
    slow.commit()
    assert values(read_to(reader, topic, 0, 4)) == [b"slow", b"quick"]


def test_many_records_keep_their_order(lab: Lab) -> None:
    topic = lab.topic()
    lab.write(topic, *(b"%d" % number for number in range(20_000)))
    assert values(lab.read_all(topic)) == [b"%d" % number for number in range(20_000)]


def test_a_newer_producer_fences_the_older_one_for_good(lab: Lab) -> None:
    topic = lab.topic()
    older = lab.producer()
    newer = lab.producer()
    with pytest.raises(FencedError):
        attempt(older, Output(topic, 0, None, b"older"))
    with pytest.raises(FencedError):
        older.abort()
    attempt(newer, Output(topic, 0, None, b"newer"))
    assert values(lab.read_all(topic)) == [b"newer"]


def test_init_aborts_what_a_predecessor_left_open(lab: Lab) -> None:
    topic = lab.topic()
    predecessor = lab.producer()
    predecessor.begin()
    predecessor.produce([Output(topic, 0, None, b"unfinished")])
    wait_for_end(lab, topic, 1)
    attempt(lab.producer(), Output(topic, 0, None, b"finished"))
    assert values(lab.read_all(topic)) == [b"finished"]
    with pytest.raises(FencedError):
        predecessor.commit()


def test_a_record_too_large_for_its_topic_is_named_and_the_rest_can_be_written_without_it(lab: Lab) -> None:
    topic = lab.topic(max_message_bytes="2000")
    producer = lab.producer()
    outputs = [Output(topic, 0, None, b"a"), Output(topic, 0, None, b"x" * 3000), Output(topic, 0, None, b"b")]
    with pytest.raises(UnproducibleError) as refused:
        attempt(producer, *outputs)
    assert refused.value.index == 1
    assert topic in str(refused.value)
    producer.abort()
    attempt(producer, outputs[0], outputs[2])
    attempt(producer, Output(topic, 0, None, b"c"))
    assert values(lab.read_all(topic)) == [b"a", b"b", b"c"]


def test_the_index_of_a_refused_record_counts_all_records_of_the_transaction(lab: Lab) -> None:
    topic = lab.topic(max_message_bytes="2000")
    producer = lab.producer()
    producer.begin()
    producer.produce([Output(topic, 0, None, b"a"), Output(topic, 0, None, b"b")])
    with pytest.raises(UnproducibleError) as refused:
        produce_until_noticed(producer, Output(topic, 0, None, b"x" * 3000), Output(topic, 0, None, b"c"))
    assert refused.value.index == 2


def test_several_refused_records_are_named_one_after_the_other(lab: Lab) -> None:
    topic = lab.topic(max_message_bytes="2000")
    producer = lab.producer()
    outputs = [Output(topic, 0, None, value) for value in (b"a", b"x" * 3000, b"b", b"y" * 4000, b"c")]
    for _ in range(2):
        with pytest.raises(UnproducibleError) as refused:
            attempt(producer, *outputs)
        producer.abort()
        assert len(outputs.pop(refused.value.index).value or b"") > 2000
    attempt(producer, *outputs)
    assert values(lab.read_all(topic)) == [b"a", b"b", b"c"]


def produce_until_noticed(producer: TransactionalProducer, bad: Output, good: Output) -> None:
    """A caller may notice the refusal in any call that follows."""
    producer.produce([bad])
    for _ in range(20):
        producer.produce([good])
        time.sleep(0.01)
    producer.commit()


def test_a_record_as_large_as_our_topics_take_can_be_written(lab: Lab) -> None:
    """A dead letter that is too large for the client could never be written, however often it is tried."""
    topic = lab.topic(max_message_bytes=str(INTERNAL_BYTES))
    largest = Output(topic, 0, None, b"x" * (INTERNAL_BYTES - EVENT_BYTES), [("h", b"x" * (EVENT_BYTES - 1000))])
    attempt(lab.producer(), largest)
    assert len(lab.read_all(topic)) == 1


def test_a_record_too_large_for_the_client_is_refused_at_once(lab: Lab) -> None:
    topic = lab.topic()
    producer = lab.producer()
    producer.begin()
    producer.produce([Output(topic, 0, None, b"a")])
    with pytest.raises(UnproducibleError) as refused:
        producer.produce([Output(topic, 0, None, b"b"), Output(topic, 0, None, b"x" * 20_000_000)])
    assert refused.value.index == 2
    producer.abort()
    assert lab.read_all(topic) == []


def test_a_partition_that_does_not_exist_makes_a_record_unproducible(lab: Lab) -> None:
    topic = lab.topic()
    producer = lab.producer()
    with pytest.raises(UnproducibleError) as refused:
        attempt(producer, Output(topic, 0, None, b"a"), Output(topic, 7, None, b"b"))
    assert refused.value.index == 1
    producer.abort()
    attempt(producer, Output(topic, 0, None, b"c"))
    assert values(lab.read_all(topic)) == [b"c"]


def test_records_that_fit_one_by_one_are_not_refused_for_coming_together(lab: Lab) -> None:
    topic = lab.topic(max_message_bytes="2000")
    producer = lab.producer()
    outputs = [Output(topic, 0, None, b"x" * 500) for _ in range(20)]
    try:
        attempt(producer, *outputs)
    except AbortableError:
        producer.abort()
        attempt(producer, *outputs)
    assert len(lab.read_all(topic)) == 20


def test_a_compacted_topic_refuses_a_record_without_a_key(lab: Lab) -> None:
    topic = lab.topic(cleanup_policy="compact")
    producer = lab.producer()
    with pytest.raises(UnproducibleError) as refused:
        attempt(producer, Output(topic, 0, b"k", b"a"), Output(topic, 0, None, b"b"))
    assert refused.value.index == 1
    producer.abort()


def test_an_aborted_producer_starts_afresh(lab: Lab) -> None:
    topic = lab.topic()
    producer = lab.producer()
    for number in range(3):
        producer.begin()
        producer.produce([Output(topic, 0, None, b"aborted")])
        producer.abort()
        attempt(producer, Output(topic, 0, None, b"%d" % number))
    assert values(lab.read_all(topic)) == [b"0", b"1", b"2"]
