"""Payloads made from events, as argo-events' `payload` describes them: take this from that event, put it there.

Event data is data: it is looked up by a path and copied, never evaluated. Paths are read when the manifest is
loaded, so that a mistake in one is an error of the manifest and not of the first event.

A value becomes text unless `useRawData` keeps its JSON type; that is argo-events' rule and payloads rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import AfterValidator

from eventbus.cloudevents import to_json
from eventbus.errors import EventBusError, InvalidEvent
from eventbus.events import Event
from sensors.paths import MISSING as _MISSING
from sensors.paths import compile_path as _lookup
from sensors.paths import split_keys as _segments
from sensors.paths import unescaped as _unescaped
from sensors.spec.base import SpecModel
from sensors.spec.fields import Bool, PartName, Text

MAX_INDEX = 9_999


class ParameterError(EventBusError):
    """A payload cannot be made from these events, now or ever."""


# --- paths ----------------------------------------------------------------------------------------------------------


class _Step(msgspec.Struct, frozen=True):
    """One step of a dotted path: a key, which is also an index where it meets a list."""

    key: str
    index: int | None = None


_APPEND = -1


@lru_cache(maxsize=4096)
def _steps(dest: str) -> tuple[_Step, ...]:
    """The steps of `dest`, as in sjson: `-1` appends to a list, `:1` is a key and never an index."""
    return tuple(_step(segment) for segment in _segments(dest)) if dest else ()


def _step(segment: str) -> _Step:
    if segment == "-1":
        return _Step(segment, _APPEND)
    if segment.isascii() and segment.isdigit():
        if len(segment) > len(str(MAX_INDEX)):
            raise ValueError(f"must not have an index beyond {MAX_INDEX:,}")
        return _Step(segment, int(segment))
    return _Step(_unescaped(segment.removeprefix(":") or segment))


# --- manifest -------------------------------------------------------------------------------------------------------


def _valid_data_key(path: str) -> str:
    _lookup(path)
    return path


def _valid_context_key(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]+", name):
        raise ValueError("must be the name of a CloudEvents attribute: lower-case letters and digits")
    return name


def _valid_dest(dest: str) -> str:
    _steps(dest)
    return dest


class ParameterSource(SpecModel):
    """Where a value comes from. `dataKey` wins over `contextKey`; `value` is used where neither finds anything."""

    not_yet: ClassVar[frozenset[str]] = frozenset(("contextTemplate", "dataTemplate"))

    dependencyName: PartName
    dataKey: Annotated[Text, AfterValidator(_valid_data_key)] | None = None
    """A path into the event's data: `body.items.0.id`, or JSONPath beginning with `$`."""
    contextKey: Annotated[Text, AfterValidator(_valid_context_key)] | None = None
    """A CloudEvents attribute, for instance `type`."""
    value: Text | None = None
    """The default. Without it, an event that lacks the path cannot be acted upon."""
    useRawData: Bool = False
    """Keep the JSON type of the value. Otherwise numbers, objects and so on are put in as text."""


class Parameter(SpecModel):
    """One value of a payload."""

    not_yet: ClassVar[frozenset[str]] = frozenset(("operation",))

    src: ParameterSource
    dest: Annotated[Text, AfterValidator(_valid_dest)] = ""
    """Where to put the value; empty: the value is the whole payload."""


def check_payload(parameters: Sequence[Parameter]) -> Sequence[Parameter]:
    """Several values cannot all be the whole payload, unless only one of their events is there."""
    if len({bool(parameter.dest) for parameter in parameters}) > 1:
        raise ValueError("must have a `dest` in every entry or in none: an entry without one is the whole payload")
    return parameters


Payload = Annotated[tuple[Parameter, ...], AfterValidator(check_payload)]


# --- values ---------------------------------------------------------------------------------------------------------


def build_payload(parameters: Sequence[Parameter], events: Mapping[str, Event]) -> bytes:
    """The payload as JSON. Raises `ParameterError` when a value is not there and has no default.

    A parameter of a dependency that has no event (`a || b`) and no default is left out.
    """
    root = _MISSING
    for parameter in parameters:
        value = _resolve(parameter.src, events.get(parameter.src.dependencyName))
        if value is _MISSING:
            continue
        if not parameter.dest:
            return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
        root = _place(root, _steps(parameter.dest), value, parameter.dest)
    return msgspec.json.encode({} if root is _MISSING else root)


def _resolve(source: ParameterSource, event: Event | None) -> Any:
    if event is None:
        return _MISSING if source.value is None else source.value
    if source.dataKey is None and source.contextKey is None:
        return _typed(_whole(event), source) if source.value is None else source.value
    try:
        found = _select(source, event)
    except (InvalidEvent, ParameterError) as error:
        if source.value is None:
            raise ParameterError(f"dependency `{source.dependencyName}`: {error}") from None
        return source.value
    return _typed(found, source)


def _select(source: ParameterSource, event: Event) -> Any:
    if source.dataKey is None:
        part, path = "context", source.contextKey or ""
        found = event.attributes.get(path, _MISSING)
    elif event.data is not None and not event.has_json:
        raise ParameterError(f"the data of event `{event.id}` is {event.attributes['datacontenttype']}, not JSON")
    else:
        part, path = "data", source.dataKey
        found = _lookup(path)(event.json())
    if found is _MISSING:
        raise ParameterError(f"event `{event.id}` has no `{path}` in its {part}, and the parameter has no default")
    return found


def _whole(event: Event) -> dict[str, Any]:
    """The event as argo-events shows it: attributes under `context`, beside the data."""
    document = msgspec.json.decode(to_json(event))
    data = {member: document.pop(member) for member in ("data", "data_base64") if member in document}
    return {"context": document, **data}


def _typed(value: Any, source: ParameterSource) -> Any:
    return value if source.useRawData else _text(value)


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case float():
            text = format(Decimal(repr(value)), "f")
            return text.removesuffix(".0")
        case _:
            return msgspec.json.encode(value).decode()


def _place(target: Any, steps: Sequence[_Step], value: Any, dest: str) -> Any:
    """`target` with the value put at the end of the steps; lists and objects are made as needed."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if target is _MISSING or target is None:
        target = {} if step.index is None else []
    if isinstance(target, dict):
        target[step.key] = _place(target.get(step.key, _MISSING), rest, value, dest)
    elif isinstance(target, list) and step.index is not None:
        index = len(target) if step.index == _APPEND else step.index
        target.extend([None] * (index + 1 - len(target)))
        target[index] = _place(target[index], rest, value, dest)
    else:
        what = "a list" if isinstance(target, list) else f"`{_text(target)[:40]}`"
        raise ParameterError(f"`dest: {dest}` cannot be set: there is {what} where `{step.key}` should go")
    return target
