"""What a source tells is written whole: as an event, or as a dead letter that says why it is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

from eventbus import Bus, Event
from eventbus.clock import SystemClock
from eventbus.errors import RetriableError, UnproducibleError
from eventbus.memory.producer import MemoryProducer
from eventbus.memory.publisher import MemoryPublisher
from eventbus.ports import Output
from eventbus.topics import EVENT_BYTES, INTERNAL_BYTES
from eventsources.base import Deliver, Identity, SourceError, Unusable
from eventsources.delivery import ThroughJournal, ThroughSink
from eventsources.drafts import Drafts
from eventsources.journal import Journal
from eventsources.metrics import Outcome, SourceMetrics
from eventsources.sink import Sieve, Sink
from sensors.redrive import Box, Selection, redrive
from tests.eventsources.serving import Alone, events_on, letters_on, manifest

IDENTITY = Identity("orders", "order", "nats")
TORN = Unusable("7", "the message is not JSON", b"{\xff")

Open: TypeAlias = Callable[..., Any]


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def bus(request: pytest.FixtureRequest, namespace: str) -> Iterator[Bus]:
    on_kafka = request.param == "kafka"
    servers = request.getfixturevalue("kafka_bootstrap_servers") if on_kafka else None
    with Bus.connect(servers, namespace=namespace) if on_kafka else Bus.memory() as made:
        made.ensure(1)
        yield made


@pytest.fixture
def tally() -> Counter[Outcome]:
    return Counter()


@pytest.fixture(params=["sink", "journal"])
def deliver(request: pytest.FixtureRequest, bus: Bus, tally: Counter[Outcome]) -> Iterator[Deliver]:
    spec = manifest(
        "nats", "orders", order={"url": "nats://x", "subject": "s", "filter": {"expression": 'body != "no"'}}
    )
    [(_, order)] = spec.identities()
    drafts = Drafts(bus, IDENTITY, Sieve.of(order))

    def count(outcome: Outcome, number: int) -> None:
        tally[outcome] += number

    with _through_sink(bus, drafts, count) if request.param == "sink" else _through_journal(bus, drafts, count) as made:
        yield made


@contextmanager
def _through_sink(bus: Bus, drafts: Drafts, count: Any) -> Iterator[Deliver]:
    with Sink(bus, SourceMetrics()) as sink:
        yield ThroughSink(drafts, count, sink)


@contextmanager
def _through_journal(bus: Bus, drafts: Drafts, count: Any) -> Iterator[Deliver]:
    journal = Journal(bus, IDENTITY)
    try:
        yield ThroughJournal(drafts, count, journal, Alone())
    finally:
        journal.close()


def event(id: str, body: str = "yes") -> Event:
    return IDENTITY.event(id, {"body": body})


def test_what_cannot_be_an_event_is_kept_and_stops_nothing(
    bus: Bus, deliver: Deliver, tally: Counter[Outcome], caplog: pytest.LogCaptureFixture
) -> None:
    nameless = Event({**event("2").attributes, "type": ""}, b'{"body":""}')
    deliver([event("1"), event("large", "x" * EVENT_BYTES), TORN, nameless, event("3", "no"), event("4")])
    assert [each.id for each in events_on(bus)] == ["1", "4"]
    large, torn, invalid = letters_on(bus)
    assert [letter.reason for letter, _ in (large, torn, invalid)] == ["too-large", "no-event", "invalid-event"]
    assert {letter.source for letter, _ in (large, torn, invalid)} == {"orders/order"}
    assert (torn[0].detail, torn[1]) == ("`7`: the message is not JSON", b"{\xff")
    assert len(large[1] or b"") > EVENT_BYTES
    assert large[0].truncated is None
    assert "`type` must be a non-empty string" in invalid[0].detail
    assert tally == {Outcome.PUBLISHED: 2, Outcome.DEAD_LETTERED: 3, Outcome.FILTERED: 1}
    assert "orders/order: `7` goes to the dead letters: the message is not JSON" in caplog.text


def test_of_what_no_topic_takes_the_beginning_is_kept(bus: Bus, deliver: Deliver) -> None:
    deliver([event("huge", "x" * INTERNAL_BYTES)])
    [(letter, value)] = letters_on(bus)
    assert letter.truncated == len('{"body":""}') + INTERNAL_BYTES
    assert value is not None
    assert value.startswith(b'{"body":"xxx')


def test_nothing_told_is_nothing_written(bus: Bus, deliver: Deliver, tally: Counter[Outcome]) -> None:
    deliver([])
    deliver([event("3", "no")])
    assert (events_on(bus), letters_on(bus)) == ([], [])
    assert tally == {Outcome.FILTERED: 1}


def _refusing(monkeypatch: pytest.MonkeyPatch, error: Callable[[int], Exception], *topics: str) -> None:
    """The log does not take records of these topics, for a reason that nobody could know beforehand."""

    def produce(original: Any, producer: Any, outputs: list[Output]) -> None:
        for index, output in enumerate(outputs):
            if output.topic in topics and output.key == b"bad":
                raise error(index)
        original(producer, outputs)

    def send(original: Any, publisher: Any, output: Output, told: Any) -> None:
        if output.topic in topics and output.key == b"bad":
            failure = error(0)
            if isinstance(failure, UnproducibleError):
                raise failure
            told(failure, None)
            return
        original(publisher, output, told)

    produced, sent = MemoryProducer.produce, MemoryPublisher.send
    monkeypatch.setattr(MemoryProducer, "produce", lambda self, outputs: produce(produced, self, outputs))
    monkeypatch.setattr(MemoryPublisher, "send", lambda self, output, told: send(sent, self, output, told))


def bad(id: str) -> Event:
    return Event({**event(id).attributes, "partitionkey": "bad"}, b'{"body":""}')


@pytest.mark.parametrize("bus", ["memory"], indirect=True)
def test_what_the_log_refuses_unexpectedly_is_kept_too(
    bus: Bus, deliver: Deliver, tally: Counter[Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    _refusing(monkeypatch, lambda index: UnproducibleError("no such luck", index), bus.name.event_topic)
    deliver([event("1"), bad("2"), bad("3"), event("4")])
    assert [each.id for each in events_on(bus)] == ["1", "4"]
    assert [letter.detail for letter, _ in letters_on(bus)] == ["`2`: no such luck", "`3`: no such luck"]
    assert tally == {Outcome.PUBLISHED: 2, Outcome.DEAD_LETTERED: 2}


@pytest.mark.parametrize("bus", ["memory"], indirect=True)
def test_where_not_even_the_letter_is_taken_the_source_begins_again(
    bus: Bus, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = bus.name.event_topic, bus.name.reject_topic
    _refusing(monkeypatch, lambda index: UnproducibleError("no such luck", index), *topics)
    with pytest.raises(SourceError, match="not even its dead letter is taken: no such luck"):
        deliver([bad("2")])


@pytest.mark.parametrize("bus", ["memory"], indirect=True)
def test_what_may_still_be_written_is_no_dead_letter(
    bus: Bus, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refusing(monkeypatch, lambda _: RetriableError("no broker"), bus.name.event_topic)
    with pytest.raises(SourceError, match="no broker"):
        deliver([bad("2")])
    assert letters_on(bus) == []


def test_of_the_dead_letters_only_events_may_go_back_and_only_when_they_fit(bus: Bus, deliver: Deliver) -> None:
    deliver([event("large", "x" * EVENT_BYTES), TORN])
    [large, torn] = redrive(bus.cluster, Box.of_sources(bus.name), Selection(), SystemClock())
    assert "large" in (large.refused or "")
    assert torn.refused == "it never was an event: `7`: the message is not JSON"
