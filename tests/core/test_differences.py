"""Each difference to argo-events is found where it applies, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from eventsources.kinds import DIFFERENT
from sensors.spec.base import Path
from sensors.spec.differences import DIFFERENCES

FIRST: Path = ("spec", "dependencies", 0)
TRIGGER: Path = ("spec", "triggers", 0)
FILTERS: Path = (*FIRST, "filters")
TEMPLATE: Path = (*TRIGGER, "template")


def _manifest(
    dependency: Mapping[str, Any] | None = None,
    second: Mapping[str, Any] | None = None,
    template: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Any:
    """By default one that does the same here as there."""
    return {
        "spec": {
            "dependencies": [
                {"name": "a", "eventSourceName": "shop", "eventName": "paid", **(dependency or {})},
                {"name": "b", "eventSourceName": "shop", "eventName": "packed", **(second or {})},
            ],
            "triggers": [
                {
                    "template": {"name": "t", "conditions": "a", "log": {}, **(template or {})},
                    "atLeastOnce": True,
                    **(trigger or {}),
                }
            ],
            **(spec or {}),
        }
    }


def _found(manifest: Any) -> set[tuple[str, Path]]:
    everywhere = {(each.name, path) for each in DIFFERENCES for path in each.places(manifest)}
    return everywhere - {("at-least-once", (*TRIGGER, "atLeastOnce"))}


def _data(**fields: Any) -> dict[str, Any]:
    return {"dependency": {"filters": {"data": [{"path": "v", "value": ["true"], **fields}]}}}


DATA: Path = (*FILTERS, "data", 0)
NO_DATA = ("no-data", (*FILTERS, "data"))
PARAMETER = {"src": {"dependencyName": "b", "dataKey": "v"}, "dest": "v"}
CASES: list[tuple[dict[str, Any], list[tuple[str, Path]]]] = [
    ({}, []),
    ({"template": {"conditions": "a && b"}}, [("joined-events", (*TEMPLATE, "conditions"))]),
    ({"template": {"conditions": ""}}, [("joined-events", (*TEMPLATE, "name"))]),
    ({"template": {"conditions": "a || b"}}, []),
    (
        {"template": {"conditions": "a || b"}, "second": {"eventName": "paid"}},
        [("one-event-two-alternatives", (*TEMPLATE, "conditions"))],
    ),
    (
        {"dependency": {"name": "x-y"}, "second": {"name": "x_y"}, "template": {"conditions": "x_y"}},
        [("similar-names", ("spec", "dependencies", 1, "name"))],
    ),
    (
        {"template": {"conditionsReset": [{"byTime": {"cron": "0 0 * * *", "timezone": "UTC"}}]}},
        [("conditions-reset", (*TEMPLATE, "conditionsReset"))],
    ),
    (
        {"template": {"conditionsReset": [{"byTime": {"cron": "0 0 * * *"}}]}},
        [
            ("conditions-reset", (*TEMPLATE, "conditionsReset")),
            ("conditions-reset-time-zone", (*TEMPLATE, "conditionsReset", 0, "byTime")),
        ],
    ),
    ({"trigger": {"atLeastOnce": False}}, [("at-most-once", (*TRIGGER, "atLeastOnce"))]),
    ({"trigger": {"atLeastOnce": None}}, [("at-most-once", (*TEMPLATE, "name"))]),
    ({"trigger": {"retryStrategy": {}}}, []),
    (
        {"trigger": {"retryStrategy": {}, "atLeastOnce": False}},
        [("at-most-once", (*TRIGGER, "atLeastOnce")), ("retry-at-most-once", (*TRIGGER, "retryStrategy"))],
    ),
    ({"trigger": {"rateLimit": {}}}, [("rate-limit", (*TRIGGER, "rateLimit"))]),
    ({"trigger": {"dlqTrigger": {}}}, [("dlq-trigger", (*TRIGGER, "dlqTrigger"))]),
    ({"template": {"http": {}}}, [("http-status", (*TEMPLATE, "http"))]),
    ({"template": {"http": {}}, "trigger": {"policy": {"status": {"allow": [200]}}}}, []),
    ({"template": {"kafka": {"tls": {"insecureSkipVerify": True}}}}, [("kafka-delivery", (*TEMPLATE, "kafka"))]),
    (
        {"template": {"kafka": {"tls": {}}}},
        [("kafka-delivery", (*TEMPLATE, "kafka")), ("kafka-certificates", (*TEMPLATE, "kafka", "tls"))],
    ),
    (
        {"template": {"kafka": {"url": "h:1", "topic": "t", "requiredAcks": 1}}},
        [("kafka-delivery", (*TEMPLATE, "kafka")), ("kafka-fields", (*TEMPLATE, "kafka", "requiredAcks"))],
    ),
    (
        {"template": {"conditions": "a || b", "nats": {"payload": [PARAMETER]}}},
        [("absent-event", (*TEMPLATE, "nats", "payload", 0, "src", "dependencyName"))],
    ),
    ({"template": {"conditions": "b", "nats": {"payload": [PARAMETER]}}}, []),
    (
        _data(type="string", comparator="!=", value=["a", "b"]),
        [NO_DATA, ("not-equal-to-several", (*DATA, "comparator"))],
    ),
    (_data(type="string", comparator="!="), [NO_DATA]),
    (_data(type="bool", comparator="!="), [NO_DATA, ("bool-comparator", (*DATA, "comparator"))]),
    (_data(type="number"), [NO_DATA, ("not-a-number", (*DATA, "type"))]),
    (
        {"dependency": {"filters": {"context": {"type": "x", "region": "eu", "id": ""}}}},
        [("context-attributes", (*FILTERS, "context", "region"))],
    ),
    ({"dependency": {"filtersLogicalOperator": "or"}}, [("or-with-errors", (*FIRST, "filtersLogicalOperator"))]),
    (
        {"dependency": {"filters": {"dataLogicalOperator": "or"}}},
        [("or-with-errors", (*FILTERS, "dataLogicalOperator"))],
    ),
    (
        {"dependency": {"filters": {"exprs": [{"expr": "d == '2026-01-01'", "fields": []}]}}},
        [("no-data", (*FILTERS, "exprs")), ("dates-in-expressions", (*FILTERS, "exprs", 0, "expr"))],
    ),
    (
        {"dependency": {"filters": {"script": "return true"}}},
        [("no-data", (*FILTERS, "script")), ("lua-sandbox", (*FILTERS, "script"))],
    ),
    (
        {"dependency": {"transform": {"jq": "."}}},
        [("transform-fails", (*FIRST, "transform")), ("jq-dialect", (*FIRST, "transform", "jq"))],
    ),
    ({"spec": {"errorOnFailedRound": True}}, [("error-on-failed-round", ("spec", "errorOnFailedRound"))]),
    ({"spec": {"loggingFields": {"team": "a"}}}, [("logging-fields", ("spec", "loggingFields"))]),
]


@pytest.mark.parametrize(("changes", "expected"), CASES)
def test_a_difference_is_found_where_it_applies(changes: Mapping[str, Any], expected: list[tuple[str, Path]]) -> None:
    assert _found(_manifest(**changes)) == set(expected)


def test_every_difference_has_a_case() -> None:
    tested = {name for _, expected in CASES for name, _ in expected}
    assert {each.name for each in DIFFERENCES} - tested == {"at-least-once"}


SOURCE: Path = ("spec", "webhook", "a")
CALENDAR: Path = ("spec", "calendar", "a")
KAFKA: Path = ("spec", "kafka")
OTHER_CASES: list[tuple[str, Any, list[tuple[str, Path]]]] = [
    ("EventSource", {"webhook": {"a": {}}}, [("webhook-answers", SOURCE), ("webhook-bodies", SOURCE)]),
    ("EventSource", {"github": {"a": None}}, [("active-hooks", ("spec", "github", "a"))]),
    ("EventSource", {"github": {"a": {"active": False}}, "gitlab": {"b": None}}, []),
    ("EventSource", {"calendar": {"a": {"schedule": "@daily"}}}, [("missed-ticks", CALENDAR)]),
    (
        "EventSource",
        {"calendar": {"a": {"interval": "1m", "persistence": {"catchup": {}}}}},
        [("intervals", (*CALENDAR, "interval"))],
    ),
    ("EventSource", {"redis": {"a": {}}, "webhook": [], "calendar": 1}, []),
    ("EventBus", {"kafka": {"url": "h:1"}}, []),
    ("EventBus", {"kafka": {"partitioner": "hash"}}, [("bus-fields", (*KAFKA, "partitioner"))]),
    (
        "EventBus",
        {"kafka": {"consumerGroup": {"oldest": True}}},
        [("bus-fields", (*KAFKA, "consumerGroup")), ("oldest", (*KAFKA, "consumerGroup", "oldest"))],
    ),
    ("EventBus", {"kafka": []}, []),
]


@pytest.mark.parametrize(("kind", "spec", "expected"), OTHER_CASES)
def test_a_difference_of_another_kind_is_found_where_it_applies(
    kind: str, spec: Any, expected: list[tuple[str, Path]]
) -> None:
    manifest = {"kind": kind, "spec": spec}
    assert {(each.name, path) for each in DIFFERENT[kind] for path in each.places(manifest)} == set(expected)


def test_every_difference_of_another_kind_has_a_case() -> None:
    tested = {name for _, _, expected in OTHER_CASES for name, _ in expected}
    assert {each.name for kind in ("EventSource", "EventBus") for each in DIFFERENT[kind]} == tested


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        [],
        {"spec": None},
        {"spec": {"dependencies": [None, {"name": 1}], "triggers": ["x", {"template": []}]}},
        _manifest(template={"conditions": "a &&", "http": [], "kafka": {"tls": []}}, dependency={"filters": []}),
        _manifest(template={"conditions": 7, "nats": {"payload": [None]}}, dependency={"transform": "x"}),
    ],
)
def test_whatever_is_written_no_rule_stumbles(manifest: Any) -> None:
    _found(manifest)
