"""A report in words: the terminal and the page say the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from sensors import audit
from sensors.spark.report import AuditReport

MODES = {"atMostOnce": "at most once", "atLeastOnce": "at least once", "exactlyOnce": "exactly once"}


class Level(StrEnum):
    """How good or bad it is."""

    KEPT = "kept"
    UNSURE = "unsure"
    BROKEN = "broken"


class Judgement(msgspec.Struct, frozen=True):
    """A sentence, and what has to be known about it."""

    level: Level
    headline: str
    details: list[str]


def judge(report: AuditReport) -> Judgement:
    details = list(_details(report))
    broken = sum(report.counts.values())
    if broken:
        headline = "1 promise was broken." if broken == 1 else f"{broken:,} promises were broken."
        return Judgement(Level.BROKEN, headline, details)
    gaps = [
        *(["is missing"] if report.missing else []),
        *(["was not judged"] if any(report.not_judged.values()) or report.forgotten else []),
    ]
    if gaps:
        return Judgement(
            Level.UNSURE, f"Part of the history {' and part '.join(gaps)}; in the rest every promise was kept.", details
        )
    if not any(report.records.values()):
        return Judgement(Level.UNSURE, "There was nothing to judge: no record is of this time.", details)
    return Judgement(Level.KEPT, "Every promise was kept.", details)


def _details(report: AuditReport) -> Iterator[str]:
    kinds = [f"{count:,} {breach.replace('_', ' ')}" for breach, count in report.counts.items() if count]
    if kinds:
        yield ", ".join(kinds)
    gone: Counter[str] = Counter()
    for each in report.missing:
        gone[each.topic] += each.end - each.start
    yield from (
        f"missing: {count:,} {'offset' if count == 1 else 'offsets'} of {topic}" for topic, count in gone.items()
    )
    for stage in report.forgotten:
        yield f"not judged: how far the stage `{stage}` had got; Kafka has forgotten what its group has committed"
    yield from (f"not judged: {what} ({count:,})" for what, count in report.not_judged.items() if count)


def promises() -> dict[str, str]:
    """What each invariant promises, by its name: as the auditors' own documentation has it."""
    return dict(re.findall(r"^(I\d+) +(.+)$", audit.__doc__ or "", re.MULTILINE))
