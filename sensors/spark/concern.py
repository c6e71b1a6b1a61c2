"""Which events are no concern of a sensor, told by Spark from their headers alone.

On a bus that many share most events are for somebody else, and need not go to Python to be passed over. The sensor's
own core has the last word on all others: what may be wrong with an event is its business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from eventbus.cloudevents import CONTENT_TYPE, STRUCTURED, to_kafka
from eventbus.events import REQUIRED, SPEC_VERSIONS, Event
from sensors.plan import SensorPlan
from sensors.spark.entries import quoted

_ATTRIBUTE = rf"h.key = '{CONTENT_TYPE}' OR h.key RLIKE r'^ce_(?!data\z|datacontenttype\z)[a-z0-9]+\z'"
"""None that goes by another name as well."""
_FOREIGN = f"NOT startswith(h.key, 'ce_') AND lower(h.key) <> '{CONTENT_TYPE}'"
_NONE = "CAST(X'FF' AS string)"
"""A header without a value is as wrong as one that is not UTF-8."""


def concerns_nobody(*plans: SensorPlan) -> str:
    """SQL, of rows of `records.RECORD`: the event is sound, and no dependency asks for its source and name."""
    dependencies = [each for plan in plans for each in plan.dependencies]
    sources = {each.source for each in dependencies}
    names = {each.event_name for each in dependencies}
    asked_for = (
        f"{_attribute('source')} IN ({_listed(sorted(sources))}) AND "
        f"({_attribute('subject')} IN ({_listed(sorted(names))}) OR {_attribute('type')} IN ({_listed(sorted(names))}))"
    )
    return f"(NOT coalesce({asked_for}, false) AND coalesce({_SOUND}, false))"


def _attribute(name: str) -> str:
    return _header(f"ce_{name}")


def _header(name: str) -> str:
    """The only one of that name; null where there is none."""
    return f"CAST(headers[array_position(headers.key, '{name}') - 1].value AS string)"


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(map(quoted, texts))


def _usual() -> Iterator[str]:
    extensions = {"time": "2026-01-01T00:00:00Z", "partitionkey": "key"}
    for data, names in product((None, 0), ((), ("time",), ("partitionkey",), ("time", "partitionkey"))):
        headers, _ = to_kafka(Event.new("source", "name", data, **{name: extensions[name] for name in names}))
        yield f"array({_listed(name for name, _ in headers)})"


_DIFFERENT = "size(array_distinct(headers.key)) = size(headers)"
_USUAL = f"headers.key IN ({', '.join(_usual())})"
"""The headers that our own sources write, in their order: Spark tells a known list at once, and names one by one."""

_SOUND = " AND ".join(
    (
        *(f"{_attribute(name)} <> ''" for name in REQUIRED if name != "specversion"),
        f"{_attribute('specversion')} IN ({_listed(SPEC_VERSIONS)})",
        f"NOT startswith(lower(coalesce({_header(CONTENT_TYPE)}, '')), '{STRUCTURED}')",
        f"is_valid_utf8(array_join(CAST(headers.value AS array<string>), ' ', {_NONE}))",
        f"({_USUAL} OR (forall(headers, h -> {_ATTRIBUTE} OR ({_FOREIGN})) AND {_DIFFERENT}))",
    )
)
