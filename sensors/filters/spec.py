"""What a manifest may say about the events of a dependency, in argo-events' words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from sensors.expressions import ExpressionError, parse
from sensors.paths import compile_path
from sensors.patterns import check_pattern
from sensors.spec.base import Flaw, SpecModel, entries, get
from sensors.spec.fields import Text
from sensors.spec.suggestions import suggest
from sensors.spec.templates import TemplateText
from sensors.values import parse_number

TRUTHS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""The texts that Go takes for true and false."""
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):[0-5]\d:[0-5]\d", re.ASCII)
_ATTRIBUTE = re.compile(r"[a-z0-9]+")


def _valid_path(path: str) -> str:
    compile_path(path)
    return path


def _valid_time(text: str) -> str:
    if not _TIME_OF_DAY.fullmatch(text):
        raise ValueError("must be a time of day such as `17:30:00`")
    return text


def _valid_zone(name: str) -> str:
    try:
        ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError):
        raise ValueError(f"must be a time zone such as `Europe/Berlin`, which `{name}` is not") from None
    return name


def _attributes(given: Any) -> Any:
    """Empty values are left out: a cluster writes them for all that its user did not say."""
    if not isinstance(given, Mapping):
        return given  # which is refused after this
    attributes: dict[str, str] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not _ATTRIBUTE.fullmatch(name):
            raise ValueError(f"must have names of CloudEvents attributes, lower-case letters and digits, not `{name}`")
        if isinstance(value, bool):
            attributes[name] = "true" if value else "false"
        elif isinstance(value, str | int):
            attributes[name] = str(value)
        elif value is not None:
            raise ValueError(f"must have a single value for `{name}`")
    return {name: value for name, value in attributes.items() if value}


def _or_default(default: str) -> BeforeValidator:
    return BeforeValidator(lambda value: default if value == "" else value)


Path = Annotated[Text, AfterValidator(_valid_path)]
TimeOfDay = Annotated[Text, AfterValidator(_valid_time)]
Zone = Annotated[Text, AfterValidator(_valid_zone)]
Attributes = Annotated[
    dict[str, str],
    BeforeValidator(_attributes),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": f"^{_ATTRIBUTE.pattern}$"},
            "additionalProperties": {"type": ["string", "integer", "boolean", "null"]},
        }
    ),
]
Operator = Annotated[Literal["and", "or"], _or_default("and"), WithJsonSchema({"enum": ["and", "or", ""]})]
Comparator = Annotated[
    Literal["=", "!=", ">", ">=", "<", "<="],
    _or_default("="),
    WithJsonSchema({"enum": ["=", "!=", ">", ">=", "<", "<=", ""]}),
]


class DataFilter(SpecModel):
    """Compares one value of the event's data."""

    path: Path
    """Where the value is: `body.items.0.id` as in gjson, or JSONPath beginning with `$`."""
    type: Literal["bool", "number", "string"]
    """How to compare it. A `string` is compared with regular expressions (RE2), which may match any part of it."""
    value: Annotated[tuple[Text, ...], Field(min_length=1)]
    """What to compare it with. One of several is enough; with `!=`, none of them may be equal."""
    comparator: Comparator = "="
    """For `number` any of them, for `bool` and `string` only `=` and `!=`."""
    template: TemplateText | None = None
    """Text made from the value, which is `.Input` and text itself, to be compared in its place."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        kind, comparator = get(data, "type"), get(data, "comparator")
        if kind in ("bool", "string") and comparator in (">", ">=", "<", "<="):
            yield Flaw(("comparator",), f"a `{kind}` can be compared with `=` and `!=` only, not with `{comparator}`")
        for index, value in entries(data, "value"):
            if isinstance(value, str) and (complaint := _complaint(kind, value)):
                yield Flaw(("value", index), complaint)


def _complaint(kind: Any, value: str) -> str | None:
    match kind:
        case "number" if parse_number(value) is None:
            return f"`{value}` is not a number"
        case "bool" if value not in TRUTHS:
            return f"`{value}` is neither `true` nor `false`"
        case "string":
            try:
                check_pattern(value)
            except ValueError as error:
                return str(error)
    return None


class ExprField(SpecModel):
    """A value of the event's data that an expression can use."""

    path: Path
    """Where the value is. An event without it does not pass."""
    name: Annotated[Text, Field(min_length=1)]
    """What the expression calls it; `[in brackets]` where it is no plain word."""


class ExprFilter(SpecModel):
    """An expression that must be true."""

    expr: Text
    """govaluate's operators: `+ - * / % **`, `& | ^ << >> ~`, `== != > >= < <= =~ !~ in`, `&& || !`, `?: ??`."""
    fields: Annotated[tuple[ExprField, ...], Field(min_length=1)]
    """The variables in it."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        text, names = get(data, "expr"), [get(field, "name") for _, field in entries(data, "fields")]
        if not isinstance(text, str):
            return
        try:
            used = parse(text).names
        except ExpressionError as error:
            yield Flaw(("expr",), error.message, error.column - 1)
            return
        if not names or not all(isinstance(name, str) for name in names):
            return
        for name, column in used.items():
            if name not in names:
                yield Flaw(("expr",), f"no field is named `{name}`; {suggest(name, names)}", column - 1)


class TimeFilter(SpecModel):
    """A time of day at which events pass, by when they were appended to the log."""

    start: TimeOfDay
    """The first second, as `hh:mm:ss`."""
    stop: TimeOfDay
    """The second after the last. Before `start`, it means the next day."""
    timezone: Zone = ""
    """A name of the IANA time zone database; empty is UTC."""


class Filters(SpecModel):
    """Which of the events satisfy the dependency."""

    exprs: tuple[ExprFilter, ...] = ()
    exprLogicalOperator: Operator = "and"
    """Whether all expressions must be true, or one of them."""
    data: tuple[DataFilter, ...] = ()
    dataLogicalOperator: Operator = "and"
    """Whether all comparisons must hold, or one of them."""
    context: Attributes = Field(default={})
    """CloudEvents attributes and extensions that the event must have, with exactly these values."""
    time: TimeFilter | None = None
    script: Text = ""
    """Lua that returns `true` for events that pass. The data is in `event`. Needs `kafka-eventbus[scripts]`."""


class Transform(SpecModel):
    """Makes other data of the event's, before it is filtered. An event for which that fails is a dead letter."""

    jq: Text = ""
    """A jq program whose first output is the new data, an object. Needs `kafka-eventbus[scripts]`."""
    script: Text = ""
    """Lua that returns the new data, a table. The old is in `event`. Needs `kafka-eventbus[scripts]`."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        given = [name for name in ("jq", "script") if get(data, name)]
        if len(given) == 2:
            yield Flaw(("script",), "a transform has `jq` or `script`, not both", about_key=True)
        if not given and isinstance(data, Mapping):
            yield Flaw((), "a transform needs `jq` or `script`")
