"""What becomes of sources that fail, foreseen or not, and of answers that nobody waits for any more."""

from __future__ import annotations

import asyncio
import logging
from threading import Event as Flag
from typing import Any

import pytest

from eventbus import Bus
from eventbus.errors import ConfigError, MachineError
from eventsources.base import Context, SourceError, Stop
from eventsources.receiver.app import _Fate
from eventsources.runner import SourceRunner
from eventsources.sources import SOURCES
from eventsources.spec import EventSourceManifest
from sensors.spec.problems import ManifestError
from tests.eventsources.serving import Alone, events_on, manifest, metric, serving

CLOCK = manifest("calendar", "clock", tick={"interval": "1h"})


class Moody:
    """A source that fails in its own way, and then works."""

    def __init__(self, *moods: Exception) -> None:
        self._moods = list(moods)
        self.worked = Flag()

    def run(self, context: Context, stop: Stop) -> None:
        if self._moods:
            raise self._moods.pop(0)
        context.deliver([context.identity.event("1", None)], b"1")
        self.worked.set()
        stop.wait()


def _run(bus: Bus, source: Moody, monkeypatch: pytest.MonkeyPatch, made: EventSourceManifest = CLOCK) -> SourceRunner:
    monkeypatch.setattr("eventsources.runner._FIRST_PAUSE", 0.01)
    monkeypatch.setitem(SOURCES, "calendar", SOURCES["calendar"]._replace(make=lambda _: source))
    return SourceRunner(made, bus, lambda _: Alone()).start()


def test_what_fails_begins_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Moody(SourceError("no answer"), SourceError("no answer"))
    with _run(bus, source, monkeypatch) as runner:
        assert source.worked.wait(10)
        assert metric(runner, "eventbus_source_restarts_total", eventsource="clock", event="tick") == 2
        assert (runner.failure, runner.complaints()) == (None, [])
    assert [event.id for event in events_on(bus)] == ["1"]


def test_what_fails_unforeseen_does_not_pretend_to_run(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with _run(bus, Moody(ZeroDivisionError("by zero")), monkeypatch) as runner:
        for thread in runner._threads:
            thread.join(10)
        assert isinstance(runner.failure, MachineError)
        assert runner.complaints() == ["clock/tick has failed: ZeroDivisionError: by zero"]
    assert "clock/tick has failed" in caplog.text


def test_an_answer_that_comes_when_the_server_has_stopped_harms_nobody() -> None:
    loop = asyncio.new_event_loop()
    fate = _Fate(loop)
    loop.close()
    fate.settle(None)


def test_every_log_line_of_a_source_carries_its_fields(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of its threads, of its server and of whoever starts it; and no others."""
    fields = {"team": "shop"}
    source = Moody(SourceError("no answer"))
    with caplog.at_level(logging.DEBUG, "eventbus.source"):
        with _run(bus, source, monkeypatch, _with(CLOCK, fields)):
            assert source.worked.wait(10)
        hooks = manifest("webhook", orders={"endpoint": "/orders", "port": 0})
        with serving(bus, _with(hooks, fields)) as shop:
            assert shop.send("no event", Content_Type="application/cloudevents+json").status == 400
        logging.getLogger("eventbus.source").warning("somebody else")
    carried = {record.getMessage(): vars(record).get("logging_fields") for record in caplog.records}
    assert carried.pop("somebody else") is None
    for words in ("no answer; it begins again", "listens on port", "shop/orders: 400"):
        assert [message for message in carried if words in message]
    assert all(each == fields for each in carried.values())


def _with(made: EventSourceManifest, fields: dict[str, str]) -> EventSourceManifest:
    return made.model_copy(update={"spec": made.spec.model_copy(update={"loggingFields": fields})})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"calendar": {"tick": {"interval": "1ms"}}}, "spec.calendar.tick.interval: `interval` must be at least 100ms"),
        ({"calendar": {"": {"interval": "1m"}}}, "`` must be 1 to 1,024 printable characters"),
        ({}, "there is no source: add one of"),
        ({"calendar": {"tick": {"interval": "1m"}}, "webhook": {"a": {"endpoint": "/"}}}, "make two EventSources"),
    ],
)
def test_what_a_manifest_cannot_say(spec: dict[str, Any], message: str) -> None:
    from eventsources.spec import EVENT_SOURCES

    document = {"apiVersion": "eventbus.dev/v1alpha1", "kind": "EventSource", "metadata": {"name": "x"}, "spec": spec}
    with pytest.raises(ManifestError) as error:
        EVENT_SOURCES.make(document)
    assert message in str(error.value)


# --- ports ------------------------------------------------------------------------------------------------------------


def _webhook(bus: Bus, name: str, port: int) -> SourceRunner:
    return SourceRunner(manifest("webhook", name, a={"endpoint": "/", "port": port}), bus, lambda _: Alone())


@pytest.mark.parametrize("started", [True, False])
def test_two_sources_on_one_port_are_told_in_one_line(bus: Bus, *, started: bool) -> None:
    """Before anything of the second has begun, whether or not the first has."""
    with _webhook(bus, "one", 0) as one:
        if started:
            one.start()
        [port] = one.ports
        with pytest.raises(ConfigError) as error:
            _webhook(bus, "other", port)
    assert str(error.value) == f"cannot listen on port {port}: Address already in use"
    with _webhook(bus, "other", port) as other:
        assert other.start().ports == [port]


def test_a_port_that_is_any_free_one_is_nobodys() -> None:
    made = manifest(
        "webhook", a={"endpoint": "/a", "port": 0}, b={"endpoint": "/b"}, c={"endpoint": "/c", "port": "80"}
    )
    assert made.ports() == {80, 12000}
    assert CLOCK.ports() == set()
