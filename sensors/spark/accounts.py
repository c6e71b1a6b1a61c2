"""The books of an audit: what a sensor has done, and beside it what its own core says it should have done."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row
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
from sensors.rules import DUPLICATE, EXPIRED, RESET, SUPERSEDED, SUPPRESSED
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
    in_brief,
    inside,
    kind_of,
    number_of,
    quoted,
    under_way,
)
from sensors.spark.history import EVENT, History
from sensors.spark.routing import beginnings, joined, matched, routed
from sensors.spark.workers import ACTION, EVENTS, LETTER, READ, TRIGGER, TRIGGERS, UNUSED, Deputy

BLOCK = 50_000
"""Offsets of a sequence that one task works out, about."""
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
    brief: Sequence[Row]
    """All entries, added up by what they say and not by what they are about."""
    whole: bool
    """Whether the trigger topic is known from its beginning, and one generation of the spec has dealt with it all."""
    generations: Sequence[int]
    """Which generations have written the actions."""

    def release(self) -> None:
        for table in (self.actions, self.letters, self.totals):
            table.unpersist()


def keep_accounts(
    history: History, deputy: Deputy, trigger: str | None = None, *, block: int | None = BLOCK
) -> Accounts:
    """Work it all out, in brief or (`block` is None) in detail. `trigger` is the one in question; None: all of them.

    In brief, what should be there is only summed up, to be compared with the sum of what is there: that is enough to
    see that nothing is wrong, and not to see what is. And the events of a trigger without keys, which are one sequence
    however many there are, are cut into chunks where the sensor says that it has fired, about every `block` offsets:
    a slot holds nothing then, so that chunks can be worked out side by side. Where the sensor has not told the truth
    this shows in the chunk before the cut.

    What does not wait for something else is asked for at the same time: while Spark prepares one query, or the last
    task of it is at work, its cores have another.
    """
    plan = deputy.plan
    tables = history.tables
    names = [each for name in plan.triggers for each in _with_dlq(plan, name)]
    wanted = names if trigger is None else _with_dlq(plan, trigger)
    only = "true" if trigger is None else f"trigger IN ({', '.join(map(quoted, wanted))})"
    or_none = f"trigger IS NULL OR {only}"
    events = matched(history, deputy).where(or_none)
    due_of_events = _due_of_events(events, wanted)
    actions = facts.action_facts(tables[Kind.ACTION]).where(only).persist(StorageLevel.MEMORY_AND_DISK)
    with ThreadPoolExecutor() as beside:
        of_events = None if block is None else beside.submit(in_brief(due_of_events).collect)
        generations = [row[0] for row in actions.select("generation").distinct().orderBy("generation").collect()]
        whole = history.complete(Kind.TRIGGER) and set(generations) <= {plan.owner.generation}
        begun = None if whole else beginnings(actions, plan)
        to_join = routed(history, plan, begun, actions, block)
        of_known = inside(history.slices[Kind.ACTION].offsets, "partition", "offset")
        accounts = Accounts(
            plan=plan,
            history=history,
            names=wanted,
            matched=events,
            joined=joined(to_join, history, deputy, payload=False).where(or_none),
            in_detail=joined(to_join, history, deputy, payload=True).where(or_none),
            actions=actions,
            invocations=facts.invocation_facts(tables[Kind.INVOCATION]).where(only).where(of_known),
            letters=facts.letter_facts(tables[Kind.DLQ]).where(or_none).persist(StorageLevel.MEMORY_AND_DISK),
            totals=actions,
            brief=(),
            whole=whole,
            generations=generations,
        )
        due_of_triggers = _due_of_triggers(accounts)
        there = _found_actions(accounts, begun).unionByName(_letters(accounts))
        ledger = there.unionByName(_notes(accounts)).unionByName(_failures(accounts))
        if of_events is None:
            ledger = ledger.unionByName(due_of_events).unionByName(due_of_triggers).unionByName(_uses(accounts))
            totals = _kept_totals(ledger)
            brief = in_brief(totals).collect()
        else:
            totals = _kept_totals(ledger)
            kept = beside.submit(totals.count)
            brief = in_brief(due_of_triggers.unionByName(there)).collect() + of_events.result()
            kept.result()
    return msgspec.structs.replace(accounts, totals=totals, brief=brief)


def _kept_totals(ledger: DataFrame) -> DataFrame:
    return added_up(ledger).where(UNSETTLED).persist(StorageLevel.MEMORY_AND_DISK)


def _with_dlq(plan: SensorPlan, trigger: str) -> list[str]:
    """What its actions are called, and those of its `dlqTrigger`."""
    return [trigger, dlq_name(trigger)] if plan.triggers[trigger].has_dlq_trigger else [trigger]


# --- the ledger -------------------------------------------------------------------------------------------------------


_PLACE = {"trigger": "trigger", "slot": "slot", "reason": "reason"}
_IS_READ = f"(kind = '{READ}')"


def _due_of_events(events: DataFrame, names: Sequence[str]) -> DataFrame:
    """What match has come to."""
    offset = f"CASE WHEN NOT {_IS_READ} THEN source_offset END"
    return entries(
        events,
        kind_of("kind"),
        about={**_PLACE, "action": "action", "partition": "source_partition", "offset": offset},
        columns={
            "expected": f"CASE WHEN {_IS_READ} THEN 0 ELSE 1 END",
            "found": f"CASE WHEN {_IS_READ} THEN content ELSE 0 END",
            "content": f"CASE WHEN NOT {_IS_READ} THEN content END",
            "content_most": f"CASE WHEN NOT {_IS_READ} THEN content END",
            "written": f"CASE WHEN {_IS_READ} THEN source_offset END",
            "newest_event": f"CASE WHEN {_IS_READ} THEN source_timestamp END",
            "trigger": number_of(names, "trigger"),
            "reason": number_of(REASONS, "reason"),
        },
    )


def _due_of_triggers(accounts: Accounts) -> DataFrame:
    """What join has come to, and what there is of the trigger topic."""
    known = inside(accounts.history.judged(EVENT), "source_partition", "source_offset")
    unknown = f"(kind = '{TRIGGER}' AND NOT {known})"
    due = f"kind IN ('{ACTION}', '{LETTER}')"
    to_judge = f"reason IN {_OF_HELD}" if accounts.whole else "false"
    slot = f"CASE WHEN kind <> '{UNUSED}' THEN slot END"  # those are only counted
    return entries(
        accounts.joined.where(f"kind <> '{LETTER}' OR {to_judge}"),
        kind_of("kind"),
        about={**_PLACE, "slot": slot, "action": "action", "partition": "source_partition", "offset": "source_offset"},
        columns={
            "expected": f"CASE WHEN {due} THEN 1 ELSE 0 END",
            "found": f"CASE WHEN {_IS_READ} THEN content WHEN {due} OR {unknown} THEN 0 ELSE 1 END",
            "content": f"CASE WHEN NOT {_IS_READ} AND NOT {unknown} THEN content END",
            "content_most": f"CASE WHEN NOT {_IS_READ} AND NOT {unknown} THEN content END",
            "trigger": number_of(accounts.names, "trigger"),
            "reason": number_of(REASONS, "reason"),
        },
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


def _found_actions(accounts: Accounts, begun: DataFrame | None) -> DataFrame:
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
            "trigger": number_of(accounts.names, "trigger"),
            "written": "timestamp",
            "newest_event": "newest_event",
        },
    )


def used_twice(accounts: Accounts) -> DataFrame:
    """Events (by a hash of them) that one trigger has used more than once: a quick look, for accounts in brief."""
    used = _used(accounts).selectExpr("xxhash64(trigger, slot, event.partition, event.offset) AS event")
    return used.repartition("event").groupBy("event").count().where("count > 1")


def _used(accounts: Accounts) -> DataFrame:
    actions = accounts.actions.where("NOT redriven AND NOT failure")
    return actions.selectExpr("trigger", "slot", "explode(events) AS event")


def _uses(accounts: Accounts) -> DataFrame:
    return entries(
        _used(accounts),
        str(USE),
        about={
            "trigger": "trigger",
            "slot": "slot",
            "partition": "event.partition",
            "offset": "event.offset",
        },
        columns={"found": "1", "trigger": number_of(accounts.names, "trigger")},
    )


def _notes(accounts: Accounts) -> DataFrame:
    counted = {column: f"CASE WHEN outcome = '{outcome}' THEN 1 ELSE 0 END" for column, outcome in OUTCOMES.items()}
    attempted = f"outcome NOT IN ('{OUTCOMES['taken']}', '{OUTCOMES['released']}')"
    return entries(
        accounts.invocations,
        str(KINDS[ACTION]),
        about={"action": "action"},
        columns={
            **counted,
            "trigger": number_of(accounts.names, "trigger"),
            "mode": f"{number_of(MODES, 'mode')} - 1",
            "started": f"CASE WHEN {attempted} THEN started END",
            "ended": f"CASE WHEN {attempted} THEN ended END",
        },
    )


def _letters(accounts: Accounts) -> DataFrame:
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
            "trigger": number_of(accounts.names, "trigger"),
        },
    )


def _failures(accounts: Accounts) -> DataFrame:
    """An action that was given up, and the one that is due because of it."""
    due = [name for name, each in accounts.plan.triggers.items() if each.has_dlq_trigger]
    about = {"slot": "about"}
    letters = accounts.letters.where(f"reason = '{ACTION_FAILED}'").where(F.col("trigger").isin(due))
    given_up = entries(
        letters.selectExpr("action AS about", "trigger"),
        str(FAILURE),
        about=about,
        columns={"expected": "1", "trigger": number_of(accounts.names, "trigger")},
    )
    actions = accounts.actions.where("failure AND NOT redriven").selectExpr("failed_action AS about", "trigger")
    made = entries(
        actions, str(FAILURE), about=about, columns={"found": "1", "trigger": number_of(accounts.names, "trigger")}
    )
    return given_up.unionByName(made)
