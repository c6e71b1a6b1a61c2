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
from pyspark.sql import functions as F

from eventbus.names import Stage
from sensors.spark.accounts import Accounts
from sensors.spark.bookkeeping import BLOCK, keep_accounts
from sensors.spark.entries import KINDS
from sensors.spark.history import History
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
            accounts = keep_accounts(history, deputy, trigger, block=None)
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
    """Stages that have worked, and of which there is no commit."""
    commits = accounts.history.commits
    stages = []
    if not commits.match and accounts.history.origins:
        stages.append(Stage.MATCH)
    if not commits.join and not accounts.actions.where("joined_offset IS NOT NULL").isEmpty():
        stages.append(Stage.JOIN)
    if not commits.invoke and not accounts.invocations.isEmpty():
        stages.append(Stage.INVOKE)
    return [str(stage) for stage in stages]


def _not_judged(accounts: Accounts) -> dict[str, int]:
    """What there is, and what cannot be said about it."""
    others = [generation for generation in accounts.generations if generation != accounts.plan.owner.generation]
    reasons = {}
    if others:
        listed = ", ".join(map(str, others))
        written = accounts.actions.where(F.col("generation").isin(others)).where("NOT redriven AND NOT failure").count()
        reasons[f"actions of other generations of the spec ({listed}): audit those with their manifests"] = written
    if not accounts.whole:
        caused = [number for number, name in enumerate(accounts.names, start=1) if name in accounts.plan.triggers]
        unjudged = accounts.totals.where(
            f"kind = {KINDS[ACTION]} AND records > 0 AND unfinished = 0 AND expected = 0 AND found = 0"
        ).where(F.col("trigger").isin(caused))
        what = "actions of which the beginning is not known: whether they were due"
        reasons[what] = unjudged.count() - sum(reasons.values())
    if accounts.known_since > accounts.history.since:
        old = f"kind = {KINDS[ACTION]} AND records > 0 AND written < {accounts.known_since}"
        reasons["actions of which not all invocations or dead letters are known"] = accounts.totals.where(old).count()
    return {reason: count for reason, count in reasons.items() if count > 0}
