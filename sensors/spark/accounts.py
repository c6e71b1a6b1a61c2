"""The books of an audit: what a sensor has done, and beside it what its own core says it should have done."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from eventbus.names import Kind
from sensors.deadletters import (
    ACTION_FAILED,
    EXPIRED_EVENT,
    FLUSHED,
    INVALID_EVENT,
    NO_KEY,
    PAUSED,
    SPEC_CHANGED,
    TRANSFORM_FAILED,
)
from sensors.dlqactions import dlq_name
from sensors.plan import SensorPlan
from sensors.rules import DUPLICATE, EXPIRED, RESET, SUPERSEDED, SUPPRESSED, Rules
from sensors.spark import facts
from sensors.spark.entries import (
    FAILURE,
    KINDS,
    MODES,
    OUTCOMES,
    UNSETTLED,
    USE,
    added_up,
    entries,
    inside,
    kind_of,
    number_of,
    quoted,
    under_way,
)
from sensors.spark.history import EVENT, History
from sensors.spark.joins import JOINED, TRIGGER_ROW, joining
from sensors.spark.workers import ACTION, EVENTS, LETTER, MATCHED, READ, TRIGGER, TRIGGERS, UNUSED, Deputy, matching

BLOCK = 50_000
"""Offsets of a sequence that one task works out, about."""
_CLOCK_BLOCK = 100_000
"""Offsets of a partition whose clock one task works out."""
_OF_EVENTS = (INVALID_EVENT, TRANSFORM_FAILED, NO_KEY)
_OF_ACTIONS = (ACTION_FAILED, PAUSED)
_OF_HELD = (EXPIRED_EVENT, FLUSHED, SPEC_CHANGED)


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of an audit. Those that are used more than once are kept."""

    plan: SensorPlan
    history: History
    names: Sequence[str]
    """The triggers, as they are numbered."""
    matched: DataFrame
    joined: DataFrame
    in_detail: DataFrame
    """As `joined`, and which events the actions are made of."""
    actions: DataFrame
    invocations: DataFrame
    letters: DataFrame
    totals: DataFrame
    """One row for everything that the ledger is about, but for records and uses that are as they should be."""
    whole: bool
    """Whether the trigger topic is known from its beginning, and one generation of the spec has dealt with it all."""
    cut: bool
    """Whether long sequences were cut into chunks."""
    generations: Sequence[int]
    """Which generations have written the actions."""

    def release(self) -> None:
        for table in (self.actions, self.totals):
            table.unpersist()


def keep_accounts(
    spark: SparkSession, history: History, deputy: Deputy, trigger: str | None = None, *, block: int | None = BLOCK
) -> Accounts:
    """Work it all out. `trigger` is the one in question; None: all of them.

    The events of a trigger without keys are one sequence, however many there are. It is cut into chunks where the
    sensor says that it has fired, about every `block` offsets: a slot holds nothing then, so that chunks can be worked
    out side by side. Where the sensor has not told the truth this shows in the chunk before the cut, and all of it has
    to be worked out again without cuts (`block` is None) to see what else is wrong.
    """
    plan = deputy.plan
    tables = history.tables
    names = [each for name in plan.triggers for each in _with_dlq(plan, name)]
    wanted = names if trigger is None else _with_dlq(plan, trigger)
    only = "true" if trigger is None else f"trigger IN ({', '.join(map(quoted, wanted))})"
    or_none = f"trigger IS NULL OR {only}"
    actions = facts.action_facts(tables[Kind.ACTION]).where(only).persist(StorageLevel.MEMORY_AND_DISK)
    generations = [row[0] for row in actions.select("generation").distinct().orderBy("generation").collect()]
    whole = history.complete(Kind.TRIGGER) and set(generations) <= {plan.owner.generation}
    begun = None if whole else _beginnings(actions, plan)
    cuts = _cuts(actions, plan, block)
    routed = _routed(spark, history, plan, begun, cuts)
    of_known = inside(history.slices[Kind.ACTION].offsets, "partition", "offset")
    accounts = Accounts(
        plan=plan,
        history=history,
        names=wanted,
        matched=_matched(history, deputy).where(or_none),
        joined=_joined(routed, history, deputy, payload=False).where(or_none),
        in_detail=_joined(routed, history, deputy, payload=True).where(or_none),
        actions=actions,
        invocations=facts.invocation_facts(tables[Kind.INVOCATION]).where(only).where(of_known),
        letters=facts.letter_facts(tables[Kind.DLQ]).where(or_none),
        totals=actions,
        whole=whole,
        cut=cuts is not None,
        generations=generations,
    )
    totals = added_up(_ledger(accounts, begun)).where(UNSETTLED).persist(StorageLevel.MEMORY_AND_DISK)
    return msgspec.structs.replace(accounts, totals=totals)


def _with_dlq(plan: SensorPlan, trigger: str) -> list[str]:
    """What its actions are called, and those of its `dlqTrigger`."""
    return [trigger, dlq_name(trigger)] if plan.triggers[trigger].has_dlq_trigger else [trigger]


# --- again, by the sensor's own core ----------------------------------------------------------------------------------


def _matched(history: History, deputy: Deputy) -> DataFrame:
    events = history.tables[EVENT].where(inside(history.judged(EVENT), "partition", "offset"))
    return events.mapInArrow(matching(deputy, payload=False), MATCHED)


def _beginnings(actions: DataFrame, plan: SensorPlan) -> DataFrame:
    """Where a slot is known to hold nothing: at its first action of this generation of the spec."""
    remembering = [name for name, each in plan.triggers.items() if _remembers(each.rules)]
    own = actions.where(f"NOT redriven AND joined_offset IS NOT NULL AND generation = {plan.owner.generation}")
    if remembering:
        own = own.where(~F.col("trigger").isin(remembering))
    return own.groupBy(F.col("joined_partition").alias("partition"), "key").agg(F.min("joined_offset").alias("begun"))


def _remembers(rules: Rules | None) -> bool:
    """Whether a slot knows more than what it holds: what it has done or seen before."""
    return rules is not None and (rules.once_within is not None or rules.dedupe is not None)


def _cuts(actions: DataFrame, plan: SensorPlan, block: int | None) -> DataFrame | None:
    """Where the long sequences are cut: offsets of the trigger topic, by partition and key."""
    plain = [name for name, each in plan.triggers.items() if each.rules is None and not each.direct]
    if block is None or not plain:
        return None
    own = actions.where(F.col("trigger").isin(plain) & F.expr("NOT redriven AND NOT failure"))
    last = own.groupBy(
        F.col("joined_partition").alias("partition"), "key", F.expr(f"CAST(joined_offset / {block} AS bigint) AS block")
    ).agg(F.max("joined_offset").alias("cut"))
    cuts = last.groupBy("partition", "key").agg(F.sort_array(F.collect_list("cut")).alias("cuts"))
    long = cuts.where("size(cuts) > 1")
    return None if long.isEmpty() else long


def _joined(routed: DataFrame, history: History, deputy: Deputy, *, payload: bool) -> DataFrame:
    clocks = {partition: commit.clock for partition, commit in history.commits.join.items()}
    return routed.mapInArrow(joining(deputy, clocks=clocks, payload=payload), JOINED)


def _routed(
    spark: SparkSession, history: History, plan: SensorPlan, begun: DataFrame | None, cuts: DataFrame | None
) -> DataFrame:
    """The trigger topic, on its way to the join."""
    records = facts.trigger_facts(history.tables[Kind.TRIGGER])
    judged = inside(history.judged(Kind.TRIGGER), "partition", "offset")
    if begun is not None:
        records = records.join(begun, ["partition", "key"], "left")
        judged = f"{judged} AND coalesce(offset > begun, false)"
    records = records.withColumn("judged", F.expr(judged))
    if begun is None and Kind.TRIGGER in history.in_order:
        return _as_read(records)
    return _by_slot(spark, plan, records, cuts)


def _as_read(records: DataFrame) -> DataFrame:
    """Whole partitions in their own order, as the sensor itself reads them: enough of them to keep all cores busy.

    Nothing has to be moved, and the clock of a partition comes by itself.
    """
    return records.withColumns({"chunk": F.lit(0), "clock": F.lit(0).cast("bigint")}).select(*TRIGGER_ROW)


def _by_slot(spark: SparkSession, plan: SensorPlan, records: DataFrame, cuts: DataFrame | None) -> DataFrame:
    """What concerns a slot meets in one place, and in order."""
    if any(each.rules is not None for each in plan.triggers.values()):
        records = _clocked(records)
    else:
        records = records.withColumn("clock", F.lit(0).cast("bigint"))  # plain triggers ask for no time
    chunk = F.lit(0)
    if cuts is not None:
        records = records.join(F.broadcast(cuts), ["partition", "key"], "left")
        chunk = F.expr("greatest(size(filter(cuts, cut -> cut < offset)), 0)")
    slots = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    routed = records.withColumn("chunk", chunk).select(*TRIGGER_ROW).repartition(slots, "key", "chunk")
    return routed.sortWithinPartitions("partition", "chunk", "offset")


_TIME = "CASE WHEN value IS NOT NULL THEN source_timestamp END"
"""A record without an event is a dead letter, and moves no clock."""


def _clocked(records: DataFrame) -> DataFrame:
    """The latest time in the partition up to each record, in blocks, so that no task has to see a whole partition."""
    blocks = records.withColumn("block", F.expr(f"CAST(offset / {_CLOCK_BLOCK} AS bigint)"))
    peaks = blocks.groupBy("partition", "block").agg(F.max(F.expr(_TIME)).alias("peak"))
    before = Window.partitionBy("partition").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    peaks = peaks.select("partition", "block", F.max("peak").over(before).alias("earlier"))
    within = Window.partitionBy("partition", "block").orderBy("offset")
    blocks = blocks.withColumn("running", F.max(F.expr(_TIME)).over(within))
    clocked = blocks.join(F.broadcast(peaks), ["partition", "block"])
    return clocked.withColumn("clock", F.expr("coalesce(greatest(running, earlier), 0)")).drop("running", "earlier")


# --- the ledger -------------------------------------------------------------------------------------------------------


def _ledger(accounts: Accounts, begun: DataFrame | None) -> DataFrame:
    number = number_of(accounts.names, "trigger")
    is_read = f"(kind = '{READ}')"
    place = {"trigger": "trigger", "slot": "slot", "reason": "reason"}
    offset = f"CASE WHEN NOT {is_read} THEN source_offset END"
    wanted = entries(
        accounts.matched,
        kind_of("kind"),
        about={**place, "action": "action", "partition": "source_partition", "offset": offset},
        columns={
            "expected": f"CASE WHEN {is_read} THEN 0 ELSE 1 END",
            "found": f"CASE WHEN {is_read} THEN content ELSE 0 END",
            "content": f"CASE WHEN NOT {is_read} THEN content END",
            "content_most": f"CASE WHEN NOT {is_read} THEN content END",
            "written": f"CASE WHEN {is_read} THEN source_offset END",
            "newest_event": f"CASE WHEN {is_read} THEN source_timestamp END",
            "trigger": number,
            "reason": number_of(REASONS, "reason"),
        },
    )
    known = inside(accounts.history.judged(EVENT), "source_partition", "source_offset")
    unknown = f"(kind = '{TRIGGER}' AND NOT {known})"
    due = f"kind IN ('{ACTION}', '{LETTER}')" if accounts.whole else f"kind = '{ACTION}'"
    slot = f"CASE WHEN kind <> '{UNUSED}' THEN slot END"  # those are only counted
    joined = entries(
        accounts.joined.where(f"kind <> '{LETTER}' OR reason IN {_OF_HELD}"),
        kind_of("kind"),
        about={**place, "slot": slot, "action": "action", "partition": "source_partition", "offset": "source_offset"},
        columns={
            "expected": f"CASE WHEN {due} THEN 1 ELSE 0 END",
            "found": f"CASE WHEN {is_read} THEN content WHEN {due} OR {unknown} THEN 0 ELSE 1 END",
            "content": f"CASE WHEN NOT {is_read} AND NOT {unknown} THEN content END",
            "content_most": f"CASE WHEN NOT {is_read} AND NOT {unknown} THEN content END",
            "trigger": number,
            "reason": number_of(REASONS, "reason"),
        },
    )
    return (
        wanted.unionByName(joined)
        .unionByName(_found_actions(accounts, begun, number))
        .unionByName(_uses(accounts, number))
        .unionByName(_notes(accounts, number))
        .unionByName(_letters(accounts, number))
        .unionByName(_failures(accounts, number))
    )


REASONS = (SUPERSEDED, EXPIRED, RESET, DUPLICATE, SUPPRESSED, EVENTS, TRIGGERS)
"""Why an event was let go, or from where records were read, as they are numbered."""


def judged_actions(accounts: Accounts) -> str:
    """SQL, of actions: whether they should have been caused by what is judged."""
    history = accounts.history
    events = inside(history.judged(EVENT), "origin_partition", "origin_offset")
    triggers = inside(history.judged(Kind.TRIGGER), "joined_partition", "joined_offset")
    caused = f"CASE WHEN joined_offset IS NULL THEN {events} ELSE {triggers} END"
    return f"NOT redriven AND NOT failure AND {caused}"


def _found_actions(accounts: Accounts, begun: DataFrame | None, number: str) -> DataFrame:
    actions, judged = accounts.actions, judged_actions(accounts)
    if begun is not None:
        begun = begun.withColumnRenamed("partition", "joined_partition")
        actions = actions.join(begun, ["joined_partition", "key"], "left")
        judged = f"({judged}) AND (joined_offset IS NULL OR coalesce(joined_offset > begun, false))"
    found = f"CASE WHEN {judged} THEN 1 ELSE 0 END"
    return entries(
        actions,
        str(KINDS[ACTION]),
        about={"action": "action"},
        columns={
            "found": found,
            "records": "1",
            "unfinished": f"CASE WHEN {under_way(accounts.history.commits.invoke)} THEN 1 ELSE 0 END",
            "content": f"CASE WHEN {judged} THEN content END",
            "content_most": f"CASE WHEN {judged} THEN content END",
            "trigger": number,
            "written": "timestamp",
            "newest_event": "newest_event",
        },
    )


def _uses(accounts: Accounts, number: str) -> DataFrame:
    used = accounts.actions.where("NOT redriven AND NOT failure").selectExpr(
        "trigger", "slot", "explode(events) AS event"
    )
    return entries(
        used,
        str(USE),
        about={
            "trigger": "trigger",
            "slot": "slot",
            "partition": "event.partition",
            "offset": "event.offset",
        },
        columns={"found": "1", "trigger": number},
    )


def _notes(accounts: Accounts, number: str) -> DataFrame:
    counted = {column: f"CASE WHEN outcome = '{outcome}' THEN 1 ELSE 0 END" for column, outcome in OUTCOMES.items()}
    attempted = f"outcome NOT IN ('{OUTCOMES['taken']}', '{OUTCOMES['released']}')"
    return entries(
        accounts.invocations,
        str(KINDS[ACTION]),
        about={"action": "action"},
        columns={
            **counted,
            "trigger": number,
            "mode": f"{number_of(MODES, 'mode')} - 1",
            "started": f"CASE WHEN {attempted} THEN started END",
            "ended": f"CASE WHEN {attempted} THEN ended END",
        },
    )


def _letters(accounts: Accounts, number: str) -> DataFrame:
    """What the dead letters say of actions, and what of events."""
    events = inside(accounts.history.judged(EVENT), "partition", "offset")
    of_events = f"(reason IN {_OF_EVENTS} AND {events})"
    of_held = f"(reason IN {_OF_HELD} AND event_trigger IS NOT NULL)" if accounts.whole else "false"
    of_actions = f"(reason IN {_OF_ACTIONS} AND action IS NOT NULL)"
    kind = f"CASE WHEN {of_actions} THEN {KINDS[ACTION]} ELSE {KINDS[LETTER]} END"
    return entries(
        accounts.letters.where(f"{of_events} OR {of_held} OR {of_actions}"),
        kind,
        about={
            "action": "action",
            "trigger": f"CASE WHEN {of_events} THEN trigger ELSE event_trigger END",
            "slot": f"CASE WHEN {of_events} THEN '' ELSE event_slot END",
            "partition": f"CASE WHEN {of_events} THEN partition ELSE event_partition END",
            "offset": f"CASE WHEN {of_events} THEN offset ELSE event_offset END",
            "reason": "reason",
        },
        columns={
            "found": f"CASE WHEN {of_actions} THEN 0 ELSE 1 END",
            "letters": f"CASE WHEN {of_actions} AND reason = '{ACTION_FAILED}' THEN 1 ELSE 0 END",
            "paused": f"CASE WHEN {of_actions} AND reason = '{PAUSED}' THEN 1 ELSE 0 END",
            "trigger": number,
        },
    )


def _failures(accounts: Accounts, number: str) -> DataFrame:
    """An action that was given up, and the one that is due because of it."""
    due = [name for name, each in accounts.plan.triggers.items() if each.has_dlq_trigger]
    about = {"slot": "about"}
    letters = accounts.letters.where(f"reason = '{ACTION_FAILED}'").where(F.col("trigger").isin(due))
    given_up = entries(
        letters.selectExpr("action AS about", "trigger"),
        str(FAILURE),
        about=about,
        columns={"expected": "1", "trigger": number},
    )
    actions = accounts.actions.where("failure AND NOT redriven").selectExpr("failed_action AS about", "trigger")
    made = entries(actions, str(FAILURE), about=about, columns={"found": "1", "trigger": number})
    return given_up.unionByName(made)
