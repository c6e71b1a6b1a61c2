"""What a Sensor does differently here than in argo-events, and how to see in a manifest that it applies.

Every rule looks at a manifest as it was written, which need not be valid, and yields the places that it concerns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from sensors.conditions import Condition, ConditionError, parse
from sensors.spec.base import Path, entries, get
from sensors.spec.difference import Difference, recorder

_KNOWN_TO_ARGO = frozenset(("type", "subject", "source", "datacontenttype"))
"""The attributes that argo-events' context filter looks at."""


DIFFERENCES: list[Difference] = []

_NOT_NEEDED_FOR_KAFKA = ("partition", "requiredAcks", "flushFrequency", "version")


difference = recorder(DIFFERENCES)


def _dependencies(manifest: Any) -> Iterator[tuple[Path, Any]]:
    for index, dependency in entries(get(manifest, "spec"), "dependencies"):
        yield ("spec", "dependencies", index), dependency


def _triggers(manifest: Any) -> Iterator[tuple[Path, Any]]:
    for index, trigger in entries(get(manifest, "spec"), "triggers"):
        yield ("spec", "triggers", index), trigger


def _conditions(manifest: Any) -> Iterator[tuple[Path, Any, Condition]]:
    """The place of each trigger's condition, the trigger, and the condition where it can be read."""
    names = [name for _, each in _dependencies(manifest) if isinstance(name := get(each, "name"), str)]
    for path, trigger in _triggers(manifest):
        text = get(trigger, "template", "conditions")
        try:
            condition = parse(text if isinstance(text, str) else "", names)
        except ConditionError:
            continue
        yield (*path, "template", *(("conditions",) if text else ("name",))), trigger, condition


# --- conditions -----------------------------------------------------------------------------------------------------


@difference(
    """With a Kafka bus, argo-events gives the action only the event that completed the condition. Here it gets the
    events of all dependencies.""",
    "spec.triggers[].template.conditions",
)
def joined_events(manifest: Any) -> Iterator[Path]:
    for path, _, condition in _conditions(manifest):
        if any(len(alternative) > 1 for alternative in condition.alternatives):
            yield path


@difference(
    "argo-events fires twice for an event that satisfies two alternatives. Here it fires once.",
    "spec.triggers[].template.conditions",
)
def one_event_two_alternatives(manifest: Any) -> Iterator[Path]:
    wanted = {
        get(each, "name"): (get(each, "eventSourceName"), get(each, "eventName")) for _, each in _dependencies(manifest)
    }
    for path, _, condition in _conditions(manifest):
        singles = [wanted.get(*alternative) for alternative in condition.alternatives if len(alternative) == 1]
        if any(one == other for one, other in combinations(singles, 2)):
            yield path


@difference(
    """argo-events takes `-` and `_` in names for the same, and confuses these dependencies in conditions. Here they
    are two.""",
    "spec.dependencies[].name",
)
def similar_names(manifest: Any) -> Iterator[Path]:
    seen: set[str] = set()
    for path, dependency in _dependencies(manifest):
        name = str(get(dependency, "name")).replace("-", "_")
        if name in seen:
            yield (*path, "name")
        seen.add(name)


@difference(
    """argo-events resets by the clock of each replica, when the next event comes, and forgets resets when it
    reconnects. Here the time at which events were appended to the log decides, and replicas agree.""",
    "spec.triggers[].template.conditionsReset",
)
def conditions_reset(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        if get(trigger, "template", "conditionsReset"):
            yield (*path, "template", "conditionsReset")


@difference(
    "argo-events takes the time zone of its process where none is given. Here it is UTC, as its pages say.",
    "spec.triggers[].template.conditionsReset[].byTime.timezone",
)
def conditions_reset_time_zone(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        for index, reset in entries(get(trigger, "template"), "conditionsReset"):
            if get(reset, "byTime") is not None and not get(reset, "byTime", "timezone"):
                yield (*path, "template", "conditionsReset", index, "byTime")


# --- delivery -------------------------------------------------------------------------------------------------------


@difference(
    """Without `atLeastOnce: true` argo-events may repeat an action, and loses up to 100 without a trace when it
    crashes. Here none is repeated, and the log tells which were lost.""",
    "spec.triggers[].atLeastOnce",
)
def at_most_once(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        if get(trigger, "template") is not None and get(trigger, "atLeastOnce") is not True:
            yield (*path, *(("atLeastOnce",) if get(trigger, "atLeastOnce") is False else ("template", "name")))


@difference(
    """In argo-events at least once means attempted: when every try has failed, the action is gone. Here it is in the
    dead-letter topic then.""",
    "spec.triggers[].atLeastOnce",
)
def at_least_once(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        if get(trigger, "atLeastOnce") is True:
            yield (*path, "atLeastOnce")


@difference(
    """argo-events ignores `retryStrategy` without `atLeastOnce: true`. Here an attempt is repeated if it was certainly
    not sent; to repeat others too, set `atLeastOnce: true`.""",
    "spec.triggers[].retryStrategy",
)
def retry_at_most_once(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        if get(trigger, "retryStrategy") is not None and get(trigger, "atLeastOnce") is not True:
            yield (*path, "retryStrategy")


@difference(
    "argo-events lets each replica have bursts beyond the limit. Here there are none.",
    "spec.triggers[].rateLimit",
)
def rate_limit(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        if get(trigger, "rateLimit") is not None:
            yield (*path, "rateLimit")


@difference(
    "argo-events gives this trigger the events only. Here it gets the error and the attempts, too.",
    "spec.triggers[].dlqTrigger",
)
def dlq_trigger(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        if get(trigger, "dlqTrigger") is not None:
            yield (*path, "dlqTrigger")


# --- actions --------------------------------------------------------------------------------------------------------


@difference(
    """argo-events takes every answer for success, a 500 too, unless there is a `policy`. Here 2xx is success; 408, 425,
    429 and 5xx are worth another try, and anything else is a failure at once.""",
    "spec.triggers[].template.http",
)
def http_status(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        if get(trigger, "template", "http") is not None and get(trigger, "policy", "status") is None:
            yield (*path, "template", "http")


@difference(
    """argo-events does not wait for Kafka, so that failures are never seen. Here the action is done when Kafka has the
    record.""",
    "spec.triggers[].template.kafka",
)
def kafka_delivery(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        if get(trigger, "template", "kafka") is not None:
            yield (*path, "template", "kafka")


@difference(
    """It does nothing here: the client asks the brokers for their version, records go where their key says, and each is
    waited for until all in-sync replicas have it.""",
    *(f"spec.triggers[].template.kafka.{field}" for field in _NOT_NEEDED_FOR_KAFKA),
)
def kafka_fields(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        for field in _NOT_NEEDED_FOR_KAFKA:
            if get(trigger, "template", "kafka", field) is not None:
                yield (*path, "template", "kafka", field)


@difference(
    "argo-events accepts any certificate of a broker. Here it is verified, unless `insecureSkipVerify: true`.",
    "spec.triggers[].template.kafka.tls",
)
def kafka_certificates(manifest: Any) -> Iterator[Path]:
    for path, trigger in _triggers(manifest):
        tls = get(trigger, "template", "kafka", "tls")
        if tls is not None and get(tls, "insecureSkipVerify") is not True:
            yield (*path, "template", "kafka", "tls")


@difference(
    """argo-events crashes when this parameter's event is not among those that fired the trigger. Here the parameter is
    left out.""",
    "spec.triggers[].template.http.payload",
    "spec.triggers[].template.http.dynamicHeaders",
    "spec.triggers[].template.kafka.payload",
)
def absent_event(manifest: Any) -> Iterator[Path]:
    for path, trigger, condition in _conditions(manifest):
        always = frozenset.intersection(*condition.alternatives)
        template = get(trigger, "template")
        for kind in template if isinstance(template, dict) else ():
            for field in ("payload", "dynamicHeaders"):
                for index, parameter in entries(get(template, kind), field):
                    source = get(parameter, "src")
                    if get(source, "value") is None and get(source, "dependencyName") not in always:
                        yield (*path[:4], kind, field, index, "src", "dependencyName")


# --- filters and transforms -----------------------------------------------------------------------------------------


def _data_filters(manifest: Any) -> Iterator[tuple[Path, Any]]:
    for path, dependency in _dependencies(manifest):
        for index, each in entries(get(dependency, "filters"), "data"):
            yield (*path, "filters", "data", index), each


@difference(
    "With several values, argo-events asks whether it differs from any. Here it must differ from all.",
    "spec.dependencies[].filters.data[].comparator",
)
def not_equal_to_several(manifest: Any) -> Iterator[Path]:
    for path, each in _data_filters(manifest):
        values = get(each, "value")
        if get(each, "comparator") == "!=" and isinstance(values, list) and len(values) > 1:
            yield (*path, "comparator")


@difference(
    "argo-events ignores the comparator of a `bool`. Here `!=` means that it differs.",
    "spec.dependencies[].filters.data[].comparator",
)
def bool_comparator(manifest: Any) -> Iterator[Path]:
    for path, each in _data_filters(manifest):
        if get(each, "type") == "bool" and get(each, "comparator") == "!=":
            yield (*path, "comparator")


@difference(
    "argo-events takes what is no number for 0, and `true` for 1. Here it is no match.",
    "spec.dependencies[].filters.data[].type",
)
def not_a_number(manifest: Any) -> Iterator[Path]:
    for path, each in _data_filters(manifest):
        if get(each, "type") == "number":
            yield (*path, "type")


@difference(
    "argo-events ignores this attribute. Here the event must have it.",
    "spec.dependencies[].filters.context",
)
def context_attributes(manifest: Any) -> Iterator[Path]:
    for path, dependency in _dependencies(manifest):
        context = get(dependency, "filters", "context")
        for name in context if isinstance(context, dict) else ():
            if name not in _KNOWN_TO_ARGO and context[name] not in (None, ""):
                yield (*path, "filters", "context", name)


@difference(
    "In argo-events an error in one filter, a missing path for instance, drops the event. Here another may pass.",
    "spec.dependencies[].filtersLogicalOperator",
    "spec.dependencies[].filters.exprLogicalOperator",
    "spec.dependencies[].filters.dataLogicalOperator",
)
def or_with_errors(manifest: Any) -> Iterator[Path]:
    for path, dependency in _dependencies(manifest):
        if get(dependency, "filtersLogicalOperator") == "or":
            yield (*path, "filtersLogicalOperator")
        for field in ("exprLogicalOperator", "dataLogicalOperator"):
            if get(dependency, "filters", field) == "or":
                yield (*path, "filters", field)


@difference(
    "In argo-events an event without data passes these filters. Here it does not.",
    "spec.dependencies[].filters.data",
    "spec.dependencies[].filters.exprs",
    "spec.dependencies[].filters.script",
)
def no_data(manifest: Any) -> Iterator[Path]:
    for path, dependency in _dependencies(manifest):
        for field in ("data", "exprs", "script"):
            if get(dependency, "filters", field):
                yield (*path, "filters", field)


@difference(
    "argo-events turns a text that looks like a date into a number. Here it stays a text.",
    "spec.dependencies[].filters.exprs[].expr",
)
def dates_in_expressions(manifest: Any) -> Iterator[Path]:
    for path, dependency in _dependencies(manifest):
        for index, each in entries(get(dependency, "filters"), "exprs"):
            if re.search(r"""['"]\d{4}-\d{2}""", str(get(each, "expr"))):
                yield (*path, "filters", "exprs", index, "expr")


@difference(
    "argo-events drops an event that cannot be transformed. Here it is a dead letter.",
    "spec.dependencies[].transform",
)
def transform_fails(manifest: Any) -> Iterator[Path]:
    for path, dependency in _dependencies(manifest):
        if get(dependency, "transform") is not None:
            yield (*path, "transform")


@difference(
    "Lua runs in a sandbox: no `os`, `io`, `require` or `load`, and limits on time and memory.",
    "spec.dependencies[].filters.script",
    "spec.dependencies[].transform.script",
)
def lua_sandbox(manifest: Any) -> Iterator[Path]:
    for path, dependency in _dependencies(manifest):
        for owner in ("filters", "transform"):
            if get(dependency, owner, "script"):
                yield (*path, owner, "script")


@difference(
    "argo-events runs gojq, here it is jq: `input`, `now`, `import` and the like are refused, `env` is empty.",
    "spec.dependencies[].transform.jq",
)
def jq_dialect(manifest: Any) -> Iterator[Path]:
    for path, dependency in _dependencies(manifest):
        if get(dependency, "transform", "jq"):
            yield (*path, "transform", "jq")


# --- the sensor -----------------------------------------------------------------------------------------------------


@difference(
    "argo-events never reads it, and here it changes nothing either: what fails is always in the dead-letter topic.",
    "spec.errorOnFailedRound",
)
def error_on_failed_round(manifest: Any) -> Iterator[Path]:
    if get(manifest, "spec", "errorOnFailedRound") is not None:
        yield "spec", "errorOnFailedRound"


@difference(
    "argo-events forgets them. Here they are in every line of the log.",
    "spec.loggingFields",
)
def logging_fields(manifest: Any) -> Iterator[Path]:
    if get(manifest, "spec", "loggingFields") is not None:
        yield "spec", "loggingFields"
