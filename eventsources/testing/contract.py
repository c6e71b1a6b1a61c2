"""What every event source has to do, ours and others': inherit it, with a fixture for the server that it listens to.

@pytest.fixture
def broker():
    return MyBroker()

class TestMySource(SourceContract):
    "See there."
"""

# ruff: noqa: S101 - what is asserted here, tests assert

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from eventbus.bus import Bus
from eventbus.events import Event
from eventsources.base import Identity, Source, SourceError
from eventsources.sources import SOURCES
from eventsources.testing.harness import (
    Killed,
    events_on,
    fetching,
    killed,
    manifest,
    metric,
    running,
    until,
    write_secret,
)


class Broker(ABC):
    """A server with one place where messages wait until they are acknowledged."""

    kind: str
    many = 250
    """Many times as many messages as are read in one go."""

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

    def proof(self, password: str, secret: Callable[..., dict[str, str]]) -> dict[str, Any]:
        """What a manifest says to connect with it. `secret` puts it where secrets are."""
        return {"password": secret(password)}

    def is_refusal(self, message: str) -> bool:
        """Whether it says that the password is wrong."""
        return "password" in message.lower() or "auth" in message.lower()

    def forget_readers(self) -> None:  # noqa: B027 - most servers notice at once
        """Returns when what was read by somebody who is gone can be read again."""

    @property
    def identity(self) -> Identity:
        return Identity("orders", "order", self.kind)

    def source(self, **changes: Any) -> Source:
        kind = SOURCES[self.kind]
        made = kind.make(kind.spec.model_validate(self.spec(**changes)))
        assert isinstance(made, Source)
        return made

    def failure(self, bus: Bus, **changes: Any) -> str:
        """What ends the source, in one line."""
        with fetching(self.source(**changes), bus, self.identity) as fetcher:
            error = fetcher.failure()
        assert isinstance(error, SourceError)
        assert "\n" not in str(error)
        return str(error)

    def texts(self, events: Sequence[Event]) -> list[str]:
        return [self.text_of(event) for event in events]


class SourceContract:
    """What every source has to do that fetches. There is a fixture `broker`."""

    @pytest.fixture
    def bus(self) -> Iterator[Bus]:
        """In memory, with one partition: events are in order."""
        with Bus.memory() as made:
            made.ensure(1)
            yield made

    def test_an_event_is_that_of_its_source_and_has_its_metadata(self, broker: Broker, bus: Bus) -> None:
        broker.open()
        with fetching(broker.source(metadata={"shop": "eu"}), bus, broker.identity) as fetcher:
            broker.send("a")
            [event] = fetcher.wait_for(1)
        assert (event.source, event.subject, event.type) == ("orders", "order", broker.kind)
        assert broker.text_of(event) == "a"
        assert event.json()["metadata"] == {"shop": "eu"}

    def test_it_stops_soon_when_nothing_happens(self, broker: Broker, bus: Bus) -> None:
        broker.open()
        with fetching(broker.source(), bus, broker.identity) as fetcher:
            broker.send("a")
            fetcher.wait_for(1)
        assert fetcher.error is None

    def test_a_field_that_it_does_not_have_is_refused(self, broker: Broker) -> None:
        with pytest.raises(ValidationError, match="noSuchField"):
            broker.source(noSuchField="x")

    def test_a_server_that_is_not_there_is_told_in_one_line(self, broker: Broker, bus: Bus) -> None:
        broker.open()
        broker.stop()
        try:
            assert broker.failure(bus)
        finally:
            broker.start()


class AcknowledgingContract(SourceContract):
    """And what those have to do that acknowledge messages: after their events are delivered, and never before."""

    @pytest.fixture
    def secret(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
        """Writes a secret where mounted ones are, and returns what a manifest says to refer to it."""
        monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
        return partial(write_secret, tmp_path)

    def test_what_is_delivered_is_acknowledged(self, broker: Broker, bus: Bus) -> None:
        broker.open()
        texts = [str(number) for number in range(broker.many)]
        broker.send(*texts)
        with fetching(broker.source(), bus, broker.identity) as fetcher:
            assert broker.texts(fetcher.wait_for(broker.many)) == texts
            until(lambda: broker.unacknowledged() == 0)
        assert len({event.id for event in events_on(bus)}) == broker.many

    def test_killed_between_delivery_and_acknowledgement_it_tells_again_with_the_same_id(
        self, broker: Broker, bus: Bus
    ) -> None:
        broker.open()
        broker.send("a", "b", "c")
        with fetching(broker.source(), bus, broker.identity, after=killed) as first:
            assert isinstance(first.failure(), Killed)
        assert broker.unacknowledged() == 3
        broker.forget_readers()
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
        broker.forget_readers()
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
            error = broker.failure(bus, **broker.proof(password, secret))
            assert "wrong-7c2e" not in error + caplog.text
            assert broker.is_refusal(error)
        broker.send("a")
        with fetching(broker.source(**broker.proof("right-5b1c", secret)), bus, broker.identity) as fetcher:
            assert broker.texts(fetcher.wait_for(1)) == ["a"]
