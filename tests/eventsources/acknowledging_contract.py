"""What every source has to do that acknowledges messages: after their events are delivered, and never before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pytest

from eventbus import Bus, Event
from eventsources.base import Identity, Source, SourceError
from eventsources.sources import SOURCES
from tests.eventsources.fetching import Killed, fetching, killed, running, until
from tests.eventsources.serving import events_on, manifest, metric


class Broker(ABC):
    """A server with one place where messages wait until they are acknowledged."""

    kind: str

    @abstractmethod
    def spec(self, **changes: Any) -> dict[str, Any]:
        """What a manifest says to listen there."""

    @abstractmethod
    def open(self) -> None:
        """From here on messages are kept for the source."""

    @abstractmethod
    def send(self, *texts: str) -> None: ...

    @abstractmethod
    def unacknowledged(self) -> int:
        """How many messages are known and not acknowledged, whether read or not."""

    @abstractmethod
    def text_of(self, event: Event) -> str: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """With what it has got kept."""

    @abstractmethod
    def protect(self, password: str) -> None:
        """From here on, who connects needs it."""

    @property
    def identity(self) -> Identity:
        return Identity("orders", "order", self.kind)

    def source(self, **changes: Any) -> Source:
        kind = SOURCES[self.kind]
        made = kind.make(kind.spec.model_validate(self.spec(**changes)))
        assert isinstance(made, Source)
        return made

    def texts(self, events: Sequence[Event]) -> list[str]:
        return [self.text_of(event) for event in events]


class AcknowledgingContract:
    """Subclasses have a fixture `broker`."""

    def test_what_is_delivered_is_acknowledged(self, broker: Broker, bus: Bus) -> None:
        broker.open()
        texts = [str(number) for number in range(250)]
        broker.send(*texts)
        with fetching(broker.source(), bus, broker.identity) as fetcher:
            assert broker.texts(fetcher.wait_for(250)) == texts
            until(lambda: broker.unacknowledged() == 0)
        assert len({event.id for event in events_on(bus)}) == 250

    def test_killed_between_delivery_and_acknowledgement_it_tells_again_with_the_same_id(
        self, broker: Broker, bus: Bus
    ) -> None:
        broker.open()
        broker.send("a", "b", "c")
        with fetching(broker.source(), bus, broker.identity, after=killed) as first:
            assert isinstance(first.failure(), Killed)
        assert broker.unacknowledged() == 3
        broker.send("d")
        with fetching(broker.source(), bus, broker.identity) as second:
            assert broker.texts(second.wait_for(4)) == ["a", "b", "c", "d"]
            until(lambda: broker.unacknowledged() == 0)
        assert [event.id for event in second.events[: len(first.events)]] == [event.id for event in first.events]
        assert first.events

    def test_nothing_is_acknowledged_that_was_not_delivered(self, broker: Broker, bus: Bus) -> None:
        def refused(_: Sequence[Event]) -> None:
            raise SourceError("no broker")

        broker.open()
        broker.send("a", "b")
        with fetching(broker.source(), bus, broker.identity, before=refused) as first:
            assert str(first.failure()) == "no broker"
        assert (broker.unacknowledged(), events_on(bus)) == (2, [])
        with fetching(broker.source(), bus, broker.identity) as second:
            assert broker.texts(second.wait_for(2)) == ["a", "b"]

    def test_it_goes_on_when_the_server_has_been_away(self, broker: Broker, bus: Bus) -> None:
        broker.open()
        with running(manifest(broker.kind, "orders", order=broker.spec()), bus) as runner:
            broker.send("a")
            until(lambda: len(events_on(bus)) == 1)
            broker.stop()
            until(lambda: metric(runner, "eventbus_source_restarts_total", eventsource="orders", event="order"))
            broker.start()
            broker.send("b")
            until(lambda: {"a", "b"} <= set(broker.texts(events_on(bus))))

    def test_a_wrong_password_is_told_in_one_line_without_it(
        self, broker: Broker, bus: Bus, secret: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker.open()
        broker.protect("right-5b1c")
        for password in ("wrong-7c2e", ""):
            with fetching(broker.source(password=secret(password)), bus, broker.identity) as fetcher:
                error = fetcher.failure()
            assert isinstance(error, SourceError)
            assert "\n" not in str(error)
            assert "wrong-7c2e" not in str(error) + caplog.text
            assert "password" in str(error).lower() or "auth" in str(error).lower()
        broker.send("a")
        with fetching(broker.source(password=secret("right-5b1c")), bus, broker.identity) as fetcher:
            assert broker.texts(fetcher.wait_for(1)) == ["a"]
