"""Records of every kind of topic as a line for people and an object for programs. Nothing that is read can break it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from eventbus.cli.options import View
from eventbus.cli.printing import Styled
from eventbus.cloudevents import from_json, from_kafka, to_json
from eventbus.errors import EventBusError
from eventbus.events import Event
from eventbus.formats import DeadLetter, action_fact, dead_letter, invocation, is_redrive_mark, trigger_fact
from eventbus.moments import when
from eventbus.names import BusName, Kind, SensorName
from eventbus.ports import Record
from sensors.actionrecords import events_by_dependency
from sensors.outcomes import DEAD_LETTERED, FAILED, LOST, SUCCEEDED
from sensors.redrive import decode_mark

_DATA_SHOWN = 160
_STYLES = {SUCCEEDED: "green", FAILED: "yellow", DEAD_LETTERED: "red", LOST: "red"}


class Shown(msgspec.Struct, frozen=True):
    """One record, twice."""

    line: list[Styled]
    facts: dict[str, object]


Decoder: TypeAlias = Callable[[Record], Shown]

_KINDS: Mapping[View, Kind] = {
    View.TRIGGERS: Kind.TRIGGER,
    View.ACTIONS: Kind.ACTION,
    View.INVOCATIONS: Kind.INVOCATION,
    View.DLQ: Kind.DLQ,
}


def topic_of(view: View, bus: BusName, sensor: SensorName | None) -> str | None:
    """The topic of a view; None where a sensor must be named first."""
    if view is View.EVENTS:
        return bus.event_topic
    if view is View.DLQ and sensor is None:
        return bus.reject_topic
    return None if sensor is None else sensor.topic(_KINDS[view])


def show(view: View, record: Record) -> Shown:
    """A record in words. What cannot be decoded is shown as that, with the reason and the raw bytes."""
    place: list[Styled] = [(when(record.timestamp), "dim"), (f"[{record.partition}]@{record.offset}", "cyan")]
    facts: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    try:
        shown = _DECODERS[view](record)
    except (EventBusError, ValueError) as error:
        shown = _undecodable(record, str(error))
    return Shown([*place, *shown.line], facts | shown.facts)


def _event(record: Record) -> Shown:
    event = from_kafka(record.headers, record.value)
    line: list[Styled] = [(_named(event), "bold"), (event.id, ""), (_excerpt(event.data), "dim")]
    if record.key is not None:
        line.insert(2, (f"key={_text(record.key)}", ""))
    return Shown(line, {"key": _text(record.key), "event": _document(event)})


def _trigger(record: Record) -> Shown:
    fact = trigger_fact(record)
    event = from_json(record.value or b"")
    line: list[Styled] = [
        (fact.trigger, "bold"),
        (f"{','.join(fact.dependencies)}={event.id}", ""),
        (_named(event), ""),
        (_excerpt(event.data), "dim"),
    ]
    return Shown(line, {"trigger": fact.trigger, "dependencies": fact.dependencies, "event": _document(event)})


def _action(record: Record) -> Shown:
    fact = action_fact(record)
    events = events_by_dependency(fact, record.value)
    used = " ".join(f"{name}={','.join(event.id for event in several)}" for name, several in events.items())
    facts = {
        "trigger": fact.trigger,
        "action": fact.id,
        "generation": fact.generation,
        "events": {
            name: [*map(_document, several)] if name in fact.counted else _document(several[-1])
            for name, several in events.items()
        },
    }
    key: list[Styled] = []
    if fact.key:
        facts["key"] = fact.key
        key = [(f"[{fact.key}]", "cyan")]
    return Shown([(fact.trigger, "bold"), *key, (fact.id, ""), (used, "")], facts)


def _invocation(record: Record) -> Shown:
    fact = invocation(record)
    line: list[Styled] = [
        (fact.trigger, "bold"),
        (fact.action, ""),
        (f"attempt {fact.attempt}", ""),
        (fact.outcome, _STYLES.get(fact.outcome, "")),
        (fact.status or "", ""),
        (f"{max(0, fact.ended - fact.started)} ms", "dim"),
        (fact.error or "", "red"),
    ]
    return Shown(line, {"invocation": fact})


def _dead_letter(record: Record) -> Shown:
    if is_redrive_mark(record):
        mark = decode_mark(record)
        line: list[Styled] = [("redriven", "green"), (f"{mark.partition}:{mark.offset}", "")]
        return Shown(line, {"redriven": mark})
    fact = dead_letter(record)
    line = [
        (fact.reason, "red"),
        (fact.trigger or "", "bold"),
        (f"from {origin_of(fact)}", ""),
        (fact.detail, ""),
    ]
    return Shown(line, {"dead_letter": fact} | _raw(record))


def origin_of(fact: DeadLetter) -> str:
    return fact.source or f"{fact.topic}[{fact.partition}]@{fact.offset}"


def _undecodable(record: Record, reason: str) -> Shown:
    line: list[Styled] = [("undecodable", "red"), (reason, ""), (_excerpt(record.value), "dim")]
    return Shown(line, {"undecodable": reason} | _raw(record))


def _raw(record: Record) -> dict[str, object]:
    """Key, value and headers of a record that may hold anything."""
    return {
        "key_base64": _base64(record.key),
        "value_base64": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def _named(event: Event) -> str:
    return f"{event.source}/{event.subject or event.type}"


def _document(event: Event) -> msgspec.Raw:
    return msgspec.Raw(to_json(event))


def _excerpt(data: bytes | None) -> str:
    text = _text((data or b"")[: _DATA_SHOWN + 1]) or ""
    return text if len(text) <= _DATA_SHOWN else text[:_DATA_SHOWN] + "…"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


_DECODERS: Mapping[View, Decoder] = {
    View.EVENTS: _event,
    View.TRIGGERS: _trigger,
    View.ACTIONS: _action,
    View.INVOCATIONS: _invocation,
    View.DLQ: _dead_letter,
}
