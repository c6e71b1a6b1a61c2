"""Dead letters go back where they came from, once, whoever else tries the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eventbus.clock import SystemClock
from eventbus.errors import ConfigError, FencedError, FormatError, NewerFormatError, RetriableError
from eventbus.formats import DLQ_HEADER, REDRIVE_MARK_HEADER, REDRIVEN_HEADER
from eventbus.memory import MemoryCluster
from eventbus.memory.producer import MemoryProducer
from eventbus.names import BusName, Kind, SensorName, Stage
from eventbus.ports import Output, Record
from eventbus.topics import Topology, ensure_sensor_topics
from sensors import redrive as module
from sensors.deadletters import ACTION_FAILED, INVALID_EVENT, SPEC_CHANGED, UNPRODUCIBLE, DeadLetters
from sensors.redrive import (
    Box,
    Letter,
    Outcome,
    Selection,
    decode_mark,
    mark,
    read_letters,
    redrive,
)

NAME = SensorName(BusName("ns", "bus"), "orders")
BOX = Box.of_sensor(NAME)
ACTIONS = NAME.topic(Kind.ACTION)
CLOCK = SystemClock()
ALL = Selection()


class Log:
    """A log in memory with the topics of one sensor."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.topology = ensure_sensor_topics(self.cluster, NAME)

    def write(self, outputs: Sequence[Output]) -> None:
        publisher = self.cluster.publisher()
        for output in outputs:
            publisher.send(output, lambda *_: None)
        publisher.flush(1.0)
        publisher.close()

    def read(self, topic: str) -> list[Record]:
        reader = self.cluster.reader()
        records = []
        info = self.cluster.describe([topic])[topic]
        assert info is not None
        for partition in range(info.partitions):
            reader.open(topic, partition, 0)
        while batch := reader.read(1000, 0.0):
            records += batch
        return records

    def bury(self, record: Record, reason: str = ACTION_FAILED, topology: Topology | None = None) -> None:
        letters = DeadLetters.of_stage(NAME, Stage.INVOKE, topology or self.topology, "0")
        self.write([letters.of(record, reason, "it hurts", trigger="ship", action="a-1", attempts=3)])

    def letters(self, selection: Selection = ALL) -> list[Letter]:
        return list(read_letters(self.cluster, BOX, selection, CLOCK))

    def redrive(self, selection: Selection = ALL) -> list[Outcome]:
        return list(redrive(self.cluster, BOX, selection, CLOCK))


@pytest.fixture
def log() -> Log:
    return Log()


def _action(offset: int = 0, *, partition: int = 2, value: bytes | None = b"[]") -> Record:
    return Record(ACTIONS, partition, offset, 5, b"ship\0", value, [("eb_action", b"{}"), ("ce_id", b"a-1")])


# --- formats --------------------------------------------------------------------------------------------------------


def test_a_dead_letter_with_a_header_of_ours_is_still_a_dead_letter(log: Log) -> None:
    headers = [(REDRIVE_MARK_HEADER, b"1")]
    log.bury(Record(NAME.event_topic, 0, 7, 1_000, None, b"?", headers), INVALID_EVENT)
    [letter] = log.letters()
    assert letter.fact is not None
    assert (letter.fact.offset, letter.redriven_at) == (7, None)


def test_golden_bytes_of_a_mark() -> None:
    written = mark(Record("ns-bus-orders-dlq", 3, 17, 0, b"k", b"v", ()), 1_700_000_000_000)
    assert written == Output(
        "ns-bus-orders-dlq",
        3,
        b'["redriven",3,17]',
        None,
        [("eb_redriven_mark", b'{"partition":3,"offset":17,"at":1700000000000,"v":1}')],
    )
    read = decode_mark(Record(written.topic, 3, 18, 0, written.key, None, written.headers))
    assert (read.partition, read.offset, read.at) == (3, 17, 1_700_000_000_000)


@pytest.mark.parametrize(
    ("fact", "error"),
    [
        (b'{"partition":3,"offset":17,"at":1,"v":2}', NewerFormatError),
        (b'{"partition":3}', FormatError),
        (b"\xff", FormatError),
    ],
)
def test_a_mark_that_is_not_understood_is_never_guessed(log: Log, fact: bytes, error: type[FormatError]) -> None:
    log.bury(_action())
    log.write([Output(NAME.topic(Kind.DLQ), 2, b"k", None, [(REDRIVE_MARK_HEADER, fact)])])
    with pytest.raises(error, match=r"ns-bus-orders-dlq\[2\]@1: "):
        log.redrive()
    assert log.read(ACTIONS) == []


# --- there and back -------------------------------------------------------------------------------------------------


def test_a_letter_goes_back_as_it_was(log: Log) -> None:
    original = _action(offset=7)
    log.bury(original)
    [outcome] = log.redrive()
    assert outcome.refused is None
    [back] = log.read(ACTIONS)
    assert (back.partition, back.key, back.value) == (2, original.key, original.value)
    assert list(back.headers) == [*original.headers, (REDRIVEN_HEADER, b"1")]


def test_a_null_value_stays_null(log: Log) -> None:
    log.bury(_action(value=None))
    log.redrive()
    assert [record.value for record in log.read(ACTIONS)] == [None]


def test_a_letter_is_driven_back_once(log: Log) -> None:
    log.bury(_action())
    assert len(log.redrive()) == 1
    assert log.redrive() == []
    assert len(log.read(ACTIONS)) == 1


def test_a_letter_that_was_driven_back_is_listed_only_on_request(log: Log) -> None:
    log.bury(_action(offset=1))
    log.redrive()
    log.bury(_action(offset=2))
    [waiting] = log.letters()
    assert waiting.fact is not None
    assert waiting.fact.offset == 2
    done, waiting = log.letters(Selection(redriven_too=True))
    assert done.redriven_at is not None
    assert waiting.redriven_at is None


def test_a_record_that_dies_again_counts_on(log: Log) -> None:
    log.bury(_action())
    for _ in range(3):
        log.redrive()
        back = log.read(ACTIONS)[-1]
        log.bury(back)
    counts = [dict(record.headers)[REDRIVEN_HEADER] for record in log.read(ACTIONS)]
    assert counts == [b"1", b"2", b"3"]
    assert [name for name, _ in log.read(ACTIONS)[-1].headers].count(REDRIVEN_HEADER) == 1


def test_events_go_back_to_the_event_topic(log: Log) -> None:
    log.bury(Record(NAME.event_topic, 1, 3, 5, None, b"?", [("ce_id", b"\xff")]), INVALID_EVENT)
    log.redrive()
    [back] = log.read(NAME.event_topic)
    assert (back.partition, back.value, back.headers[0]) == (1, b"?", ("ce_id", b"\xff"))


# --- choosing -------------------------------------------------------------------------------------------------------


def test_letters_are_chosen_by_reason_trigger_or_place(log: Log) -> None:
    log.bury(_action(partition=1))
    log.bury(_action(partition=2), SPEC_CHANGED)
    assert [letter.place for letter in log.letters(Selection(reason=SPEC_CHANGED))] == [(2, 0)]
    assert [letter.place for letter in log.letters(Selection(trigger="ship"))] == [(1, 0), (2, 0)]
    assert log.letters(Selection(trigger="ship", reason="none")) == []
    assert log.letters(Selection(trigger="other")) == []
    assert [outcome.letter.place for outcome in log.redrive(Selection(places=frozenset({(1, 0)})))] == [(1, 0)]
    assert [record.partition for record in log.read(ACTIONS)] == [1]


def test_a_place_that_was_driven_back_before_is_refused_with_that_reason(log: Log) -> None:
    log.bury(_action())
    log.redrive()
    [outcome] = log.redrive(Selection(places=frozenset({(2, 0)})))
    assert outcome.refused == "it was driven back already"
    assert len(log.read(ACTIONS)) == 1


def test_a_sensor_that_never_ran_has_no_letters_to_read() -> None:
    with pytest.raises(
        ConfigError, match=r"`ns-bus-orders-dlq` does not exist: the sensor ns/bus/orders has never run"
    ):
        list(read_letters(MemoryCluster(), BOX, ALL, CLOCK))


# --- refusing -------------------------------------------------------------------------------------------------------


def test_what_the_log_refused_stays(log: Log) -> None:
    letters = DeadLetters.of_stage(NAME, Stage.JOIN, log.topology, "0")
    log.write([letters.of_refused(Output(ACTIONS, 0, b"k", b"v"), "too large")])
    [outcome] = log.redrive()
    assert outcome.refused == "the log would refuse it again: too large"
    assert [letter.fact.reason for letter in log.letters() if letter.fact] == [UNPRODUCIBLE]


def test_what_is_not_whole_stays(log: Log) -> None:
    small = Topology(
        event_partitions=4,
        trigger_partitions=4,
        action_partitions=4,
        invocation_partitions=4,
        dlq_partitions=4,
        max_value_bytes=4,
    )
    log.bury(_action(value=b"123456"), topology=small)
    assert [outcome.refused for outcome in log.redrive()] == ["only the first 4 of its 6 bytes were kept"]


def test_a_letter_cannot_be_sent_to_somebody_elses_topic(log: Log) -> None:
    log.bury(Record("payroll", 0, 1, 2, b"k", b"v", ()))
    assert [outcome.refused for outcome in log.redrive()] == [
        "the topic `payroll` is none of those that it could have come from"
    ]


def test_a_record_that_is_no_dead_letter_stays_and_harms_nobody(log: Log) -> None:
    log.write([Output(NAME.topic(Kind.DLQ), 2, b"k", b"v", [(DLQ_HEADER, b"rubbish")])])
    log.bury(_action())
    broken, good = log.redrive()
    assert broken.refused is not None
    assert broken.refused.startswith("it cannot be read: ns-bus-orders-dlq[2]@0: not one of our records")
    assert good.refused is None


def test_one_letter_that_the_log_will_not_take_does_not_keep_the_others(log: Log) -> None:
    log.bury(_action(offset=1))
    log.bury(_action(offset=2, partition=99))
    log.bury(_action(offset=3))
    reasons = {outcome.letter.fact.offset: outcome.refused for outcome in log.redrive() if outcome.letter.fact}
    assert reasons[1] is reasons[3] is None
    assert reasons[2] is not None
    assert f"{ACTIONS}/99" in reasons[2]
    assert len(log.read(ACTIONS)) == 2
    assert [letter.fact.offset for letter in log.letters() if letter.fact] == [2]


# --- at the same time -----------------------------------------------------------------------------------------------


def test_a_redrive_that_is_overtaken_changes_nothing_more(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_RECORDS", 1)
    for offset in range(3):
        log.bury(_action(offset=offset))
    first = redrive(log.cluster, BOX, ALL, CLOCK)
    assert next(first).refused is None
    assert len(log.redrive()) == 2
    with pytest.raises(FencedError, match="another redrive of `ns-bus-orders-dlq` has begun and takes over"):
        next(first)
    assert len(log.read(ACTIONS)) == 3


def test_letters_are_read_after_the_claim_so_that_no_earlier_redrive_is_missed(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.bury(_action())
    init = MemoryProducer.init

    def beaten_to_it(producer: MemoryProducer) -> None:
        monkeypatch.setattr(MemoryProducer, "init", init)
        assert len(log.redrive()) == 1
        producer.init()

    monkeypatch.setattr(MemoryProducer, "init", beaten_to_it)
    assert log.redrive() == []
    assert len(log.read(ACTIONS)) == 1


def test_record_and_mark_become_visible_together_or_not_at_all(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.bury(_action())

    def lost(_producer: MemoryProducer) -> None:
        raise RetriableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryProducer, "commit", lost)
        with pytest.raises(RetriableError):
            log.redrive()
    assert log.read(ACTIONS) == []
    assert [letter.redriven_at for letter in log.letters()] == [None]
    assert len(log.redrive()) == 1


def test_transactions_stay_small(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    begin = MemoryProducer.begin

    def counted(producer: MemoryProducer) -> None:
        begun.append(producer)
        begin(producer)

    monkeypatch.setattr(module, "_CHUNK_BYTES", 10)
    monkeypatch.setattr(MemoryProducer, "begin", counted)
    for offset in range(3):
        log.bury(_action(offset=offset, value=b"123456"))
    assert len(log.redrive()) == 3
    assert len(begun) == 3


def test_reading_gives_up_when_nothing_comes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open transaction in the dead-letter topic holds the reader up until the log ends it."""
    log.bury(_action())
    monkeypatch.setattr(module, "_STALL_SECONDS", 0.05)
    producer = log.cluster.producer("somebody")
    producer.init()
    producer.begin()
    producer.produce([Output(NAME.topic(Kind.DLQ), 2, b"k", b"v")])
    with pytest.raises(RetriableError, match=r"ns-bus-orders-dlq\[2\] could not be read within 0.05 s"):
        log.letters()
