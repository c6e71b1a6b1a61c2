"""Was every promise kept? The audit of a sensor over all that it has read and written.

1. The events are matched again, and the trigger topic is joined again, by the sensor's own core, in parallel by trigger
   and key (`workers`). What comes out is what should be there.
2. That, and what is there, is entered into one ledger (`accounts`, `entries`), as far as causes and effects are known
   (`known`), and added up (`bookkeeping`): first in brief, which shows whether anything is wrong. Only if so, all of it
   is done again in detail.
3. What does not add up, and nothing else, is given to the checks of `sensors.audit`, which name it (`judgement`).
4. What adds up is measured (`measures`).
"""

from __future__ import annotations

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventbus.names import Kind, Stage
from sensors.spark.accounts import Accounts
from sensors.spark.bookkeeping import BLOCK, keep_accounts
from sensors.spark.entries import KINDS, inside
from sensors.spark.facts import trigger_facts
from sensors.spark.history import EVENT, History
from sensors.spark.judgement import acquit, judge
from sensors.spark.measures import measure
from sensors.spark.records import Range
from sensors.spark.report import SHOWN, AuditReport
from sensors.spark.workers import ACTION, Deputy


def audit(
    history: History,
    deputy: Deputy,
    asked: Range,
    *,
    trigger: str | None = None,
    block: int = BLOCK,
) -> AuditReport:
    """`asked` is the time in question, `trigger` the one in question; None: all of them. `block`: see `bookkeeping`."""
    accounts = keep_accounts(history, deputy, trigger, block=block)
    try:
        findings = acquit(accounts)
        if findings is None:
            accounts.release()
            accounts = keep_accounts(history, deputy, trigger, before=accounts)
            findings = judge(accounts)
        return AuditReport(
            sensor=str(history.name),
            generation=accounts.plan.owner.generation,
            since=asked.since,
            until=asked.until,
            **msgspec.structs.asdict(measure(accounts)),
            violations=findings.violations[:SHOWN],
            counts=dict(findings.counts),
            given_up=findings.given_up,
            repeated=findings.repeated,
            missing=history.missing,
            not_judged=_not_judged(accounts),
            forgotten=_forgotten(accounts),
        )
    finally:
        accounts.release()


def _forgotten(accounts: Accounts) -> list[str]:
    """Stages that have worked where there is no commit, or have gone on after the last one that is remembered."""
    return [str(stage) for stage in Stage if _worked_without_commit(accounts, stage) or _went_on(accounts, stage)]


def _worked_without_commit(accounts: Accounts, stage: Stage) -> bool:
    history = accounts.history
    known = history.commits.of_stage(stage).keys() | history.begun.get(stage, frozenset())
    kind = {Stage.MATCH: EVENT, Stage.JOIN: Kind.TRIGGER, Stage.INVOKE: Kind.ACTION}[stage]
    unknown = history.slices[kind].offsets.keys() - known
    if stage is Stage.MATCH:  # it has noted where it has begun, in the transaction of its first commit
        return any(partition in begun for begun in history.origins.values() for partition in unknown)
    return bool(unknown) and any(
        not effects.where(F.col(partition).isin(sorted(unknown))).isEmpty()
        for effects, partition, _ in _effects(accounts, stage)
    )


def _went_on(accounts: Accounts, stage: Stage) -> bool:
    """Whether something came of what is behind the commits that an archive was told, and Kafka has forgotten."""
    if stage not in accounts.history.commits.remembered:
        return False
    ends = accounts.history.commits.reached(stage)
    spans = {partition: (0, end) for partition, end in ends.items()}
    return any(
        not effects.where(f"NOT {inside(spans, partition, offset)}").isEmpty()
        for effects, partition, offset in _effects(accounts, stage)
    )


def _effects(accounts: Accounts, stage: Stage) -> list[tuple[DataFrame, str, str]]:
    """What has come of an input, and the columns that say where that is."""
    if stage is Stage.INVOKE:
        return [(accounts.invocations, "partition", "offset")]
    joined = "joined_partition", "joined_offset"
    if stage is Stage.JOIN:
        return [(accounts.actions.where("joined_offset IS NOT NULL"), *joined)]
    records = trigger_facts(accounts.history.tables[Kind.TRIGGER]).where("trigger IS NOT NULL")
    direct = accounts.actions.where("joined_offset IS NULL")
    return [(records, "source_partition", "source_offset"), (direct, "origin_partition", "origin_offset")]


def _not_judged(accounts: Accounts) -> dict[str, int]:
    """What there is, and what cannot be said about it."""
    reasons = {}
    if accounts.others:
        listed = ", ".join(map(str, accounts.others))
        written = (
            accounts.actions.where(F.col("generation").isin(accounts.others))
            .where("NOT redriven AND NOT failure")
            .count()
        )
        reasons[f"actions of other generations of the spec ({listed}): audit those with their manifests"] = written
    if not accounts.whole:
        caused = [number for number, name in enumerate(accounts.names, start=1) if name in accounts.plan.triggers]
        unjudged = accounts.totals.where(
            f"kind = {KINDS[ACTION]} AND records > 0 AND unfinished = 0 AND expected = 0 AND found = 0"
        ).where(F.col("trigger").isin(caused))
        what = "actions of which the beginning is not known: whether they were due"
        reasons[what] = unjudged.count() - sum(reasons.values())
        burying = [each for each in accounts.plan.triggers.values() if each.rules and each.rules.bury_expired]
        reasons["triggers whose events may expire: whether the dead letters of those are there"] = len(burying)
    if accounts.known_since > accounts.history.since:
        old = f"kind = {KINDS[ACTION]} AND records > 0 AND written < {accounts.known_since}"
        reasons["actions of which not all invocations or dead letters are known"] = accounts.totals.where(old).count()
    return {reason: count for reason, count in reasons.items() if count > 0}
