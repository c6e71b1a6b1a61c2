"""What a manifest may say about when a trigger fires."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from eventbus.schedule import Schedule
from sensors.rules import Correlation, Dedupe, Rules
from sensors.selectors import compile_selector
from sensors.spec.base import Flaw, Path, SpecModel, get
from sensors.spec.fields import CountFromOne, Duration, PartName, Text, parse_duration
from sensors.spec.suggestions import suggest

_ID = "id"
_DEFAULT_TTL_FACTOR = 2
"""By default an event is held for twice `within`: partitions of the event topic are never read at quite one pace."""


def _positive(value: timedelta) -> timedelta:
    if value < timedelta(milliseconds=1):
        raise ValueError("must be at least `1ms`")
    return value


def _selector(text: str) -> str:
    compile_selector(text)
    return text


def _selector_or_id(text: str) -> str:
    return text if text == _ID else _selector(text)


def _cron(text: str) -> str:
    Schedule(text)
    return text


def _zone(name: str) -> str:
    Schedule("@daily", name)
    return name


def _where(given: Any) -> Any:
    if isinstance(given, str):
        return _selector(given)
    if not isinstance(given, Mapping) or not given:
        raise ValueError("must be a path such as `data.order.id`, or a mapping from dependencies to such paths")
    for name, text in given.items():
        try:
            compile_selector(str(text))
        except ValueError as error:
            raise ValueError(f"for the dependency `{name}` {error}") from None
    return given


Where = Annotated[str | dict[str, str], BeforeValidator(_where)]
Counts = dict[PartName, CountFromOne]
Span = Annotated[Duration, AfterValidator(_positive)]


class Correlate(SpecModel):
    """Join only events that agree on a value."""

    by: Where
    """Where it is: `data.order.id`, `$.order.id` or `context.subject`; or, by dependency, where each has it."""
    onMissing: Literal["deadLetter", "ignore"] = "deadLetter"
    """What becomes of an event that has no such value."""


class DedupeSpec(SpecModel):
    """The same event counts once."""

    by: Annotated[Text, AfterValidator(_selector_or_id)] = _ID
    """`id`: its source and id; or where the value is that must not come twice, as in `correlate`."""
    within: Span
    """For how long it is remembered."""


class ByTime(SpecModel):
    """A point in time that comes again and again."""

    cron: Annotated[Text, AfterValidator(_cron)]
    """Five fields, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`."""
    timezone: Annotated[Text, AfterValidator(_zone)] = "UTC"
    """Where the clock shows that time: `Europe/Berlin`."""


class ConditionsReset(SpecModel):
    """When held events are forgotten: what came before is not joined with what comes after."""

    byTime: ByTime


class JoinSpec(SpecModel):
    """What a trigger is called, and when it fires."""

    name: PartName
    conditions: Text = ""
    """Names of dependencies with `&&`, `||` and parentheses; empty means all of them."""
    correlate: Correlate | None = None
    """Join only events that agree on a value, for each value by itself. Needs `within` or `ttl`."""
    within: Span | None = None
    """All events of one firing lie within this span of time: `10m`."""
    ttl: Span | None = None
    """For how long an event is held while others of its key do not come; twice `within` by default."""
    onceWithin: Span | None = None
    """At most one firing in this span of time, for each key; events of others are dropped."""
    count: Counts = Field(default={})
    """How many events a dependency needs; the action gets all of them."""
    dedupe: DedupeSpec | None = None
    onExpire: Literal["discard", "deadLetter"] = "discard"
    """What becomes of an event that waited for too long."""
    conditionsReset: tuple[ConditionsReset, ...] = Field(default=())

    def rules(self, names: Collection[str]) -> Rules | None:
        """For a condition with these dependencies; None where nothing is said."""
        said = (self.correlate, self.within, self.ttl, self.onceWithin, self.dedupe)
        if not any(each is not None for each in said) and not self.count and not self.conditionsReset:
            return None
        within, ttl = _milliseconds(self.within), _milliseconds(self.ttl)
        return Rules(
            correlation=None if self.correlate is None else _correlation(self.correlate, names),
            within=within,
            ttl=ttl if ttl is not None or within is None else _DEFAULT_TTL_FACTOR * within,
            once_within=_milliseconds(self.onceWithin),
            count=dict(self.count),
            dedupe=None if self.dedupe is None else _dedupe(self.dedupe),
            resets=tuple(Schedule(reset.byTime.cron, reset.byTime.timezone) for reset in self.conditionsReset),
            bury_expired=self.onExpire == "deadLetter",
        )


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(milliseconds=1)


def _correlation(spec: Correlate, names: Collection[str]) -> Correlation:
    by = dict.fromkeys(names, spec.by) if isinstance(spec.by, str) else {name: spec.by[name] for name in names}
    select = {name: compile_selector(text) for name, text in by.items()}
    return Correlation(by, select, ignore_missing=spec.onMissing == "ignore")


def _dedupe(spec: DedupeSpec) -> Dedupe:
    select = None if spec.by == _ID else compile_selector(spec.by)
    return Dedupe(spec.within // timedelta(milliseconds=1), select)


# --- rules between fields -------------------------------------------------------------------------------------------


def join_flaws(template: Any) -> Iterator[Flaw]:
    """What can be judged without knowing the condition."""
    if get(template, "correlate") is not None and get(template, "within") is None and get(template, "ttl") is None:
        message = "`correlate` needs `within` or `ttl`: events whose counterpart never comes would be held for ever"
        yield Flaw(("correlate",), message, about_key=True)
    within, ttl = _span(get(template, "within")), _span(get(template, "ttl"))
    if within is not None and ttl is not None and ttl < within:
        yield Flaw(("ttl",), "`ttl` must not be shorter than `within`: events would expire that could still be joined")
    expires = any(get(template, name) for name in ("within", "ttl", "conditionsReset"))
    if get(template, "onExpire") is not None and not expires:
        yield Flaw(("onExpire",), "nothing expires here: `onExpire` needs `within`, `ttl` or `conditionsReset`")


def name_flaws(template: Any, names: Collection[str], path: Path) -> Iterator[Flaw]:
    """Every dependency that is mentioned is one of the condition's, and `correlate.by` mentions all of them."""
    by = get(template, "correlate", "by")
    for field, given in ((("count",), get(template, "count")), (("correlate", "by"), by)):
        for name in given if isinstance(given, Mapping) else ():
            if isinstance(name, str) and name not in names:
                message = f"the trigger's conditions have no dependency `{name}`; {suggest(name, names)}"
                yield Flaw((*path, *field, name), message, about_key=True)
    if isinstance(by, Mapping):
        missing = [name for name in sorted(names) if name not in by]
        if missing:
            message = f"`by` must name a path for every dependency of the conditions; `{missing[0]}` is missing"
            yield Flaw((*path, "correlate", "by"), message)


def _span(value: Any) -> timedelta | None:
    try:
        return None if value is None else parse_duration(value)
    except ValueError:
        return None
