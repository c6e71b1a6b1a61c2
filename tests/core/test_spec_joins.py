"""What a manifest may say about joins, and what it is told when it says something else."""

from __future__ import annotations

import pytest

from sensors.spec.loader import load_text
from sensors.spec.problems import ManifestError

MANIFEST = """\
apiVersion: eventbus.dev/v1alpha1
kind: Sensor
metadata: {name: s}
spec:
  dependencies:
    - {name: a, eventSourceName: shop, eventName: a}
    - {name: b, eventSourceName: shop, eventName: b}
  triggers:
    - template:
        name: t
        conditions: a
        log: {}
"""


def problems(*lines: str, conditions: str = "a && b") -> list[str]:
    text = MANIFEST.replace("conditions: a", f"conditions: {conditions}") + "".join(
        f"        {line}\n" for line in lines
    )
    try:
        load_text(text, "s.yaml")
    except ManifestError as error:
        return [line for line in str(error).splitlines() if line.startswith("s.yaml")]
    return []


@pytest.mark.parametrize(
    "lines",
    [
        ["correlate: {by: data.order.id}", "within: 10m"],
        ["correlate: {by: {a: context.subject, b: $.order}, onMissing: ignore}", "ttl: 1h"],
        ["within: 1h30m", "ttl: 2h", "onExpire: deadLetter"],
        ["onceWithin: 5m", "count: {a: 3}"],
        ["dedupe: {within: 10m}"],
        ["dedupe: {by: data.delivery, within: 10m}"],
        ['conditionsReset: [{byTime: {cron: "0 0 * * *", timezone: America/Los_Angeles}}]'],
        ['conditionsReset: [{byTime: {cron: "@hourly"}}]'],
    ],
)
def test_what_can_be_said(lines: list[str]) -> None:
    assert problems(*lines) == []


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["correlate: {by: data.id}"],
            "s.yaml:13:9: `correlate` needs `within` or",
        ),
        (
            ["correlate: {by: order.id}", "within: 1m"],
            "s.yaml:13:25: `by` must be a",
        ),
        (
            ["correlate: {by: {a: data.x}}", "ttl: 1m"],
            "`by` must name a path for every dependency of the conditions; `b`",
        ),
        (["correlate: {by: {a: data.x, b: y}}", "ttl: 1m"], "`by` for the dependency `b` must be a path into the data"),
        (["correlate: {by: 7}", "ttl: 1m"], "`by` must be a path such as `data.order.id`, or a mapping"),
        (
            ["count: {c: 2}"],
            "s.yaml:13:17: the trigger's conditions have no dependency `c`",
        ),
        (["count: {a: 0}"], "`a` must be at least 1"),
        (["within: 0s"], "`within` must be at least `1ms`"),
        (["within: soon"], "`within` must be a duration such as"),
        (
            ["within: 10m", "ttl: 1m"],
            "s.yaml:14:14: `ttl` must not be shorter than `within`",
        ),
        (["onExpire: deadLetter"], "nothing expires here"),
        (["dedupe: {by: id}"], "`within` is missing"),
        (["dedupe: {by: nonsense, within: 1m}"], "`by` must be a path into the data"),
        (['conditionsReset: [{byTime: {cron: "0 0 * *"}}]'], "`cron` must be a cron expression with five fields"),
        (['conditionsReset: [{byTime: {cron: "0 25 * * *"}}]'], "`cron` must be a cron expression such as"),
        (
            ['conditionsReset: [{byTime: {cron: "0 0 * * *", timezone: Mars}}]'],
            "`timezone` must be in a time zone such as",
        ),
        (["conditionsReset: [{}]"], "`byTime` is missing"),
    ],
)
def test_what_cannot_be_said(lines: list[str], told: str) -> None:
    [problem] = problems(*lines)
    assert told in problem
