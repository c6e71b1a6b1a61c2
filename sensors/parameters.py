"""Payloads made from events, as argo-events' `payload` describes them: take this from that event, put it there.

Event data is data: it is looked up by a path and copied, never evaluated. Paths are read when the manifest is
loaded, so that a mistake in one is an error of the manifest and not of the first event.

A value becomes text unless `useRawData` keeps its JSON type; that is argo-events' rule and payloads rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal

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
from sensors.spec.fields import Bool, Text, part_name
from sensors.spec.templates import TemplateText
from sensors.templates import TemplateError, compile_template

MAX_INDEX = 9_999
FAILURE = "$failure"
"""The event that a `dlqTrigger` gets beside the others. No dependency can be called so."""


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


def _valid_source(name: str) -> str:
    return name if name == FAILURE else part_name(name)


class ParameterSource(SpecModel):
    """Where a value comes from: a template, else a key, else `value`. The data wins over the context."""

    dependencyName: Annotated[Text, AfterValidator(_valid_source)]
    """Whose event to take it from. In a `dlqTrigger` also `$failure`: why the action was given up."""
    dataTemplate: TemplateText | None = None
    """Text made from the event's data, which is `.Input`; see [templates](templates.md)."""
    dataKey: Annotated[Text, AfterValidator(_valid_data_key)] | None = None
    """A path into the event's data: `body.items.0.id`, or JSONPath beginning with `$`."""
    contextTemplate: TemplateText | None = None
    """Text made from the event's attributes, which are `.Input`."""
    contextKey: Annotated[Text, AfterValidator(_valid_context_key)] | None = None
    """A CloudEvents attribute, for instance `type`."""
    value: Text | None = None
    """The default. Without it, an event that lacks the path cannot be acted upon."""
    useRawData: Bool = False
    """Keep the JSON type of the value. Otherwise numbers, objects and so on are put in as text."""


class Parameter(SpecModel):
    """A value, and where it goes."""

    src: ParameterSource
    dest: Annotated[Text, AfterValidator(_valid_dest)] = ""
    """Where to put the value; empty, which only a payload allows: the value is everything."""
    operation: Literal["", "overwrite", "append", "prepend"] = ""
    """What becomes of a value that is there already: it is replaced, or put before or after the new one as text."""


def check_payload(parameters: Sequence[Parameter]) -> Sequence[Parameter]:
    """Several values cannot all be the whole payload, unless only one of their events is there."""
    if len({bool(parameter.dest) for parameter in parameters}) > 1:
        raise ValueError("must have a `dest` in every entry or in none: an entry without one is the whole payload")
    return parameters


def check_destinations(parameters: Sequence[Parameter]) -> Sequence[Parameter]:
    if not all(parameter.dest for parameter in parameters):
        raise ValueError("must have a `dest` in every entry")
    return parameters


Payload = Annotated[tuple[Parameter, ...], AfterValidator(check_payload)]
Parameters = Annotated[tuple[Parameter, ...], AfterValidator(check_destinations)]


# --- values ---------------------------------------------------------------------------------------------------------


def build_payload(parameters: Sequence[Parameter], events: Mapping[str, Event]) -> bytes:
    """The payload as JSON. Raises `ParameterError` when a value is not there and has no default.

    A parameter of a dependency that has no event (`a || b`) and no default is left out.
    """
    root = _MISSING
    for parameter, value in resolved(parameters, events):
        if not parameter.dest:
            return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
        root = put(root, parameter, value)
    return msgspec.json.encode({} if root is _MISSING else root)


def resolved(parameters: Iterable[Parameter], events: Mapping[str, Event]) -> Iterator[tuple[Parameter, Any]]:
    """The value of every parameter that has one; see `build_payload`."""
    for parameter in parameters:
        value = _resolve(parameter.src, events.get(parameter.src.dependencyName))
        if value is not _MISSING:
            yield parameter, value


def put(target: Any, parameter: Parameter, value: Any) -> Any:
    """`target`, changed, with the value at the parameter's `dest`."""
    steps = _steps(parameter.dest)
    there = _found(target, steps) if parameter.operation in ("append", "prepend") else _MISSING
    if there is not _MISSING:
        before, after = (there, value) if parameter.operation == "append" else (value, there)
        value = as_text(before) + as_text(after)
    return _place(target, steps, value, parameter.dest)


def step_keys(dest: str) -> tuple[str, ...]:
    """The steps of a `dest` as keys, without escapes."""
    return tuple(step.key for step in _steps(dest))


def _found(target: Any, steps: Sequence[_Step]) -> Any:
    for step in steps:
        if isinstance(target, dict):
            target = target.get(step.key, _MISSING)
        elif isinstance(target, list) and step.index is not None and 0 <= step.index < len(target):
            target = target[step.index]
        else:
            return _MISSING
    return target


def _resolve(source: ParameterSource, event: Event | None) -> Any:
    if event is None:
        return _MISSING if source.value is None else source.value
    if not any((source.dataKey, source.contextKey, source.dataTemplate, source.contextTemplate)):
        return _typed(_whole(event), source) if source.value is None else source.value
    try:
        return _typed(_select(source, event), source)
    except (InvalidEvent, ParameterError) as error:
        if source.value is None:
            raise ParameterError(f"dependency `{source.dependencyName}`: {error}") from None
        return source.value


def _select(source: ParameterSource, event: Event) -> Any:
    """By the template; where it fails or makes nothing, by the key."""
    of_data = bool(source.dataTemplate or source.dataKey)
    if of_data and event.data is not None and not event.has_json:
        raise ParameterError(f"the data of event `{event.id}` is {event.attributes['datacontenttype']}, not JSON")
    template = source.dataTemplate if of_data else source.contextTemplate
    path = (source.dataKey if of_data else source.contextKey) or ""
    part = event.json() if of_data else dict(event.attributes)
    if template:
        try:
            return _rendered(template, part)
        except TemplateError as error:
            if not path:
                raise ParameterError(f"the template cannot be used for event `{event.id}`: {error}") from None
    found = _lookup(path)(part) if of_data else part.get(path, _MISSING)
    if found is _MISSING:
        name = "data" if of_data else "context"
        raise ParameterError(f"event `{event.id}` has no `{path}` in its {name}, and the parameter has no default")
    return found


def _rendered(template: str, part: Any) -> str:
    text = compile_template(template).render({"Input": part})
    if text in ("", "<no value>"):
        raise TemplateError("it makes no text")
    return text


def _whole(event: Event) -> dict[str, Any]:
    """The event as argo-events shows it: attributes under `context`, beside the data."""
    document = msgspec.json.decode(to_json(event))
    data = {member: document.pop(member) for member in ("data", "data_base64") if member in document}
    return {"context": document, **data}


def _typed(value: Any, source: ParameterSource) -> Any:
    return value if source.useRawData else as_text(value)


def as_text(value: Any) -> str:
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
        what = "a list" if isinstance(target, list) else f"`{as_text(target)[:40]}`"
        raise ParameterError(f"`dest: {dest}` cannot be set: there is {what} where `{step.key}` should go")
    return target
