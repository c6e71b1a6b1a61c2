"""Events and memory are written together or not at all, by one at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus import Bus
from eventsources.base import Identity, SourceError
from eventsources.journal import Journal
from tests.eventsources.serving import events_on, through_journal

IDENTITY = Identity("clock", "tick", "calendar")


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def bus(request: pytest.FixtureRequest, namespace: str) -> Iterator[Bus]:
    on_kafka = request.param == "kafka"
    servers = request.getfixturevalue("kafka_bootstrap_servers") if on_kafka else None
    with Bus.connect(servers, namespace=namespace) if on_kafka else Bus.memory() as made:
        made.ensure(1)
        yield made


def test_the_next_one_knows_what_was_remembered_last(bus: Bus) -> None:
    first = Journal(bus, IDENTITY)
    assert first.remembered is None
    through_journal(bus, IDENTITY, first)([IDENTITY.event("1", None)], b"one")
    first.write([], b"two")
    first.close()
    other = Journal(bus, Identity("clock", "tock", "calendar"))
    second = Journal(bus, IDENTITY)
    assert (second.remembered, other.remembered) == (b"two", None)
    assert [event.id for event in events_on(bus)] == ["1"]
    other.close()
    second.close()


def test_whoever_opens_it_shuts_out_who_had_it(bus: Bus) -> None:
    old = Journal(bus, IDENTITY)
    through_journal(bus, IDENTITY, old)([IDENTITY.event("1", None)], b"one")
    new = Journal(bus, IDENTITY)
    with pytest.raises(SourceError, match="another replica has taken over"):
        through_journal(bus, IDENTITY, old)([IDENTITY.event("2", None)], b"two")
    through_journal(bus, IDENTITY, new)([IDENTITY.event("2", None)], b"two")
    assert [event.id for event in events_on(bus)] == ["1", "2"]
    old.close()
    new.close()
