"""Reports as an audit might make them, by hand: no Spark, no clock, the same numbers every time."""

from __future__ import annotations

from math import exp, pi, sin
from random import Random

from msgspec.structs import replace

from sensors.audit.violations import Breach, Violation
from sensors.spark.records import Missing
from sensors.spark.report import (
    FIRING,
    INVOKING,
    WAITING,
    AuditReport,
    Bucket,
    HotKey,
    Hour,
    Latency,
    Notice,
    TriggerReport,
)

START = 1_767_225_600_000
"""The first of January 2026."""
HOUR = 3_600_000
HOSTILE = "</title><script>alert('1')</script>\"']]>\n&amp;\u202eevil\x1b[2J\x00\ud800"

_SHOP = ("ship", "invoice", "notify-customer", "restock", "fraud-check")
_MODES = ("atMostOnce", "atLeastOnce", "exactlyOnce")
_BOUNDS = [0, *(2**power for power in range(20))]
_TYPICAL = {FIRING: 30, WAITING: 6, INVOKING: 180}


def empty_report() -> AuditReport:
    """Nobody has sent anything."""
    return AuditReport(
        sensor="prod/default/orders",
        generation=1,
        since=START,
        until=START + 24 * HOUR,
        first=None,
        last=None,
        records={},
        triggers=[],
        latencies=[],
        histogram=[],
        hours=[],
        hot_keys=[],
        dead_letters={},
        violations=[],
        counts={},
        given_up=[],
        repeated=[],
        missing=[],
        not_judged={},
    )


def clean_report(triggers: int = len(_SHOP), hours: int = 72) -> AuditReport:
    """A sensor that has done all it should, with the one or other retry."""
    random = Random(triggers * 100_003 + hours)
    names = [*_SHOP, *(f"team-{number:02}-webhook" for number in range(triggers))][:triggers]
    timeline = [hour for rank, name in enumerate(names) for hour in _hours(random, name, rank, hours)]
    reports = [_trigger(random, name, rank, timeline) for rank, name in enumerate(names)]
    fired = sum(each.fired for each in reports)
    return replace(
        empty_report(),
        generation=7,
        since=None,
        until=None,
        first=START + 1234 if hours else None,
        last=START + hours * HOUR - 4321 if hours else None,
        records={
            "prod-default": 2 * fired + 991,
            "prod-default-orders-trigger": fired + 322,
            "prod-default-orders-action": fired,
            "prod-default-orders-invocation": sum(each.attempts for each in reports),
            "prod-default-orders-dlq": 0,
        },
        triggers=reports,
        latencies=[_latency(random, each, stage) for each in reports for stage in _TYPICAL],
        histogram=[bucket for stage in _TYPICAL for bucket in _buckets(stage, fired)],
        hours=timeline,
        hot_keys=[HotKey(names[0], f"customer-{random.randrange(10**6)}", 90 - 7 * number) for number in range(10)]
        if names
        else [],
    )


def broken_report(cases: int = 34) -> AuditReport:
    """Promises were broken, letters are dead, and replicas died at bad moments; for a while nothing succeeded."""
    clean = clean_report()
    breaches = [*Breach]
    violations = [_violation(number, breaches[number % 3 if number % 7 else 3]) for number in range(cases)]
    counts = {breach: sum(each.breach is breach for each in violations) for breach in Breach}
    hours = [_outage(hour) for hour in clean.hours]
    dead = {each.trigger: 0 for each in clean.triggers}
    for hour in hours:
        dead[hour.trigger] += hour.dead_lettered
    return replace(
        clean,
        since=START,
        until=START + 72 * HOUR,
        triggers=[
            replace(
                each,
                dead_lettered=dead[each.trigger],
                given_up=9 if each.mode == "atMostOnce" else 0,
                repeated=7 if each.mode == "atLeastOnce" else 0,
                succeeded=max(each.succeeded - dead[each.trigger], 0),
                under_way=3,
            )
            for each in clean.triggers
        ],
        hours=hours,
        dead_letters={"action-failed": sum(dead.values()), "no-correlation-key": 41, "expired": 12, "invalid-event": 3},
        violations=violations,
        counts=counts,
        given_up=[_notice(number, "ship", "taken, and nobody knows whether it was done", 1) for number in range(18)],
        repeated=[_notice(number, "invoice", "succeeded 2 times", 2) for number in range(14)],
        missing=[
            Missing("prod-default", 0, 0, 120_311),
            Missing("prod-default", 1, 0, 118_002),
            Missing("prod-default-orders-trigger", 3, 88_100, 90_000),
        ],
        not_judged={"actions of which an event is gone": 1204, "actions of another generation": 3},
    )


def partial_report() -> AuditReport:
    """Nothing was found, but not everything was looked at."""
    broken = broken_report()
    return replace(clean_report(), missing=broken.missing, not_judged=broken.not_judged)


def hostile_report() -> AuditReport:
    """Every text comes from somebody who wants to take over the page, or the terminal."""
    notice = Notice(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), (START, 2**62), HOSTILE)
    [trigger] = clean_report(1).triggers
    return replace(
        empty_report(),
        sensor=HOSTILE,
        first=-1,
        last=2**62,
        records={HOSTILE: 1},
        triggers=[replace(trigger, trigger=HOSTILE, mode=HOSTILE, unused={HOSTILE: 3})],
        latencies=[Latency(HOSTILE, HOSTILE, 1, 2, 3, 4, 5)],
        histogram=[Bucket(HOSTILE, 8, 1)],
        hours=[Hour(start, HOSTILE, 1, 1, 1) for start in (START, 2**62, -1)] + [Hour(START, "other", 1, 1, 1)],
        hot_keys=[HotKey(HOSTILE, HOSTILE, 1)],
        dead_letters={HOSTILE: 1},
        violations=[
            Violation(
                invariant=HOSTILE,
                breach=Breach.LOST,
                what=HOSTILE,
                trigger=HOSTILE,
                events=(HOSTILE,),
                place=HOSTILE,
                replica=HOSTILE,
            )
        ],
        counts={Breach.LOST: 1},
        given_up=[notice],
        repeated=[notice],
        missing=[Missing(HOSTILE, 0, 0, 1)],
        not_judged={HOSTILE: 1},
    )


def _hours(random: Random, trigger: str, rank: int, hours: int) -> list[Hour]:
    """More by day than by night, and less on weekends."""
    found = []
    for number in range(hours):
        daily = 1.15 - sin(2 * pi * (number % 24 + 2) / 24)
        weekly = 0.4 if number // 24 % 7 in (2, 3) else 1.0
        fired = int(820 * exp(-0.45 * rank) * daily * weekly * random.uniform(0.8, 1.2)) + random.randrange(2)
        found.append(Hour(START + number * HOUR, trigger, fired, fired, 0))
    return found


def _trigger(random: Random, trigger: str, rank: int, hours: list[Hour]) -> TriggerReport:
    fired = sum(hour.fired for hour in hours if hour.trigger == trigger)
    retries = int(fired * random.uniform(0.001, 0.03))
    return TriggerReport(
        trigger=trigger,
        mode=_MODES[rank % 3],
        fired=fired,
        attempts=fired + retries,
        succeeded=fired,
        retries=retries,
        repeated=0,
        given_up=0,
        dead_lettered=0,
        under_way=0,
        held=random.randrange(40) if rank % 2 == 0 else 0,
        unused={"superseded": random.randrange(1, 900), "expired": random.randrange(50)} if rank % 2 == 0 else {},
    )


def _latency(random: Random, trigger: TriggerReport, stage: str) -> Latency:
    p50 = int(_TYPICAL[stage] * random.uniform(0.5, 2.5))
    p90 = int(p50 * random.uniform(2, 4))
    p99 = int(p90 * random.uniform(2, 8))
    return Latency(trigger.trigger, stage, trigger.fired, p50, p90, p99, int(p99 * random.uniform(2, 40)))


def _buckets(stage: str, count: int) -> list[Bucket]:
    centre = len(bin(2 * _TYPICAL[stage])) - 2
    shares = [exp(-((power - centre) ** 2) / (3 if power < centre else 9)) for power in range(len(_BOUNDS))]
    whole = sum(shares)
    return [Bucket(stage, bound, int(count * share / whole)) for bound, share in zip(_BOUNDS, shares, strict=True)]


def _outage(hour: Hour) -> Hour:
    """The target was down on the second afternoon, and everything was caught up with in the evening."""
    number = (hour.start - START) // HOUR
    if 38 <= number < 42:
        dead = hour.fired // 9 if hour.trigger in ("ship", "fraud-check") else 0
        return replace(hour, succeeded=hour.fired // 20, dead_lettered=dead)
    if 42 <= number < 45:
        return replace(hour, succeeded=int(hour.fired * 1.9))
    return replace(hour, dead_lettered=1) if number in (7, 61) and hour.trigger == "invoice" else hour


def _violation(number: int, breach: Breach) -> Violation:
    action = f"{number * 7_919_993:032x}"
    return Violation(
        invariant={Breach.LOST: "I3", Breach.DUPLICATED: "I2"}.get(breach, "I1"),
        breach=breach,
        what="an event is neither used nor held nor in the dead letters"
        if breach is Breach.LOST
        else f"the action {action} is there too often",
        trigger=_SHOP[number % 3],
        events=(
            f"prod-default[{number % 6}]@{120_000 + 37 * number}",
            f"prod-default[{number % 5}]@{118_331 + number}",
        ),
        place=f"prod-default-orders-action[{number % 6}]@{5000 + number}",
        replica=f"orders-7c9d-{number % 3}" if number % 4 else "",
    )


def _notice(number: int, trigger: str, what: str, attempts: int) -> Notice:
    ended = START + (39 + number % 3) * HOUR + number * 61_007
    return Notice(
        trigger,
        f"{number * 104_729_001:032x}",
        f"prod-default-orders-action[{number % 6}]@{7000 + number}",
        tuple(f"orders-7c9d-{(number + each) % 3}" for each in range(attempts)),
        tuple(ended + 12_345 * each for each in range(attempts)),
        what,
    )
