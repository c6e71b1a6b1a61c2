"""The books of an audit: what a sensor has done, and beside it what its own core says it should have done.

Every function here makes entries (`entries`) of one kind; `bookkeeping` puts them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from eventbus.names import Kind, Stage
from sensors.deadletters import (
    ACTION_FAILED,
    EXPIRED_EVENT,
    FLUSHED,
    INVALID_EVENT,
    INVALID_RECORD,
    NO_KEY,
    PAUSED,
    SPEC_CHANGED,
    TRANSFORM_FAILED,
    UNPRODUCIBLE,
)
from sensors.plan import SensorPlan
from sensors.rules import DUPLICATE, EXPIRED, RESET, SUPERSEDED, SUPPRESSED
from sensors.spark import facts
from sensors.spark.entries import (
    DRIVEN_BACK,
    FAILURE,
    KINDS,
    MODES,
    OUTCOMES,
    USE,
    entries,
    identity,
    inside,
    kind_of,
    number_of,
    quoted,
    under_way,
)
from sensors.spark.history import EVENT, History
from sensors.spark.records import ENDLESS
from sensors.spark.routing import Seen
from sensors.spark.workers import ACTION, HELD, LETTER, READ, REDRIVEN, TRIGGER, UNUSED
from sensors.tasks import EXACTLY_ONCE

_OF_EVENTS = (INVALID_EVENT, TRANSFORM_FAILED, NO_KEY)
_ASIDE = (PAUSED, SPEC_CHANGED)
_OF_ACTIONS = (ACTION_FAILED, *_ASIDE)
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
    recorded: DataFrame
    """The action topic; what cannot be read there has no `action`."""
    actions: DataFrame
    invocations: DataFrame
    letters: DataFrame
    totals: DataFrame
    """One row for everything that the ledger is about, but for records and uses that are as they should be."""
    brief: Sequence[Row]
    """All entries, added up by what they say and not by what they are about."""
    seen: Seen
    whole: bool
    """Whether the trigger topic is known from its beginning, and one generation of the spec has dealt with it all."""
    modes: Mapping[str, str]
    """How the manifest wants actions to be invoked, by trigger."""
    others: Sequence[int]
    """Which generations of the spec beside the one that is judged have been at work."""
    letters_since: int
    """Of what was written since then all dead letters are known."""
    known_since: int
    """Of actions that were written since then all is known."""

    def release(self) -> None:
        for table in (self.recorded, self.letters, self.totals):
            table.unpersist()

    def finished(self) -> str:
        """SQL, of an action or of a dead letter about one: whether it is dealt with, and all is known about it."""
        known = inside(self.history.known(Kind.ACTION), "partition", "offset")
        return f"({known} AND timestamp >= {self.known_since} AND NOT {under_way(self.history.commits.invoke)})"

    @property
    def all_known(self) -> bool:
        """Whether actions and dead letters are known from the first on."""
        return self.history.complete(Kind.ACTION) and self.history.complete(Kind.DLQ)


# --- the ledger -------------------------------------------------------------------------------------------------------


_PLACE = {"trigger": "trigger", "slot": "slot", "reason": "reason"}


def due_of_events(events: DataFrame, names: Sequence[str]) -> DataFrame:
    """What match has come to."""
    return entries(
        events,
        kind_of("kind"),
        about={**_PLACE, "action": "action", "partition": "source_partition", "offset": "source_offset"},
        columns={
            "expected": "1",
            "content": "content",
            "content_most": "content",
            "trigger": number_of(names, "trigger"),
        },
    )


def due_of_triggers(accounts: Accounts) -> DataFrame:
    """What join has come to, and what there is of the trigger topic."""
    place = "source_partition", "source_offset"
    driven_back = f"(kind = '{REDRIVEN}' AND NOT {accounts.history.impossible(EVENT, *place)})"
    unknown = f"(kind = '{TRIGGER}' AND NOT {_to_judge(accounts.history, EVENT, *place)})"
    reasons = (*_OF_HELD, INVALID_RECORD)
    to_judge = f"(reason IN {reasons} AND timestamp >= {accounts.letters_since})" if accounts.whole else "false"
    due = f"kind IN ('{ACTION}', '{LETTER}')"
    read = f"(kind = '{READ}')"
    slot = f"CASE WHEN kind <> '{UNUSED}' THEN slot END"  # those are only counted
    content = f"CASE WHEN NOT {read} AND NOT unknown THEN content END"
    return entries(
        accounts.joined.where(f"kind <> '{LETTER}' OR {to_judge}").withColumn("unknown", F.expr(unknown)),
        f"CASE WHEN {driven_back} THEN {DRIVEN_BACK} ELSE {kind_of('kind')} END",
        about={**_PLACE, "slot": slot, "action": "action", "partition": "source_partition", "offset": "source_offset"},
        columns={
            "expected": f"CASE WHEN {due} THEN 1 ELSE 0 END",
            "found": f"CASE WHEN {read} THEN content WHEN {due} OR unknown THEN 0 ELSE 1 END",
            "content": content,
            "content_most": content,
            "trigger": number_of(accounts.names, "trigger"),
            "reason": number_of(REASONS, "reason"),
        },
    )


REASONS = (SUPERSEDED, EXPIRED, RESET, DUPLICATE, SUPPRESSED)
"""Why an event was let go, as they are numbered."""


def judged_actions(accounts: Accounts) -> str:
    """SQL, of actions: whether they should have been caused by what is judged, or speak of what was never there."""
    event, record = ("origin_partition", "origin_offset"), ("joined_partition", "joined_offset")
    events, triggers = _to_judge(accounts.history, EVENT, *event), _to_judge(accounts.history, Kind.TRIGGER, *record)
    return f"NOT redriven AND NOT failure AND CASE WHEN joined_offset IS NULL THEN {events} ELSE {triggers} END"


def _to_judge(history: History, kind: str, partition: str, offset: str) -> str:
    """SQL, of places in an input."""
    judged = inside(history.judged(kind), partition, offset)
    return f"({judged} OR {history.impossible(kind, partition, offset)})"


def found_actions(accounts: Accounts, begun: DataFrame | None) -> DataFrame:
    actions, judged = accounts.actions, judged_actions(accounts)
    if begun is not None:
        begun = begun.withColumnRenamed("partition", "joined_partition")
        actions = actions.join(begun, ["joined_partition", "key"], "left")
        impossible = accounts.history.impossible(Kind.TRIGGER, "joined_partition", "joined_offset")
        judged = f"({judged}) AND (joined_offset IS NULL OR coalesce(joined_offset > begun, false) OR {impossible})"
    content = "CASE WHEN judged OR redriven THEN content END"
    return entries(
        actions.withColumn("judged", F.expr(judged)),
        str(KINDS[ACTION]),
        about={"action": "action"},
        columns={
            "found": "CASE WHEN judged THEN 1 ELSE 0 END",
            "records": "1",
            "driven_back": "CASE WHEN redriven THEN 1 ELSE 0 END",
            "unbacked": "CASE WHEN redriven THEN 1 ELSE 0 END" if accounts.all_known else "0",
            "unfinished": f"CASE WHEN {accounts.finished()} THEN 0 ELSE 1 END",
            "content": content,
            "content_most": content,
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
    """An event of which an action has two documents is still one event."""
    actions = accounts.actions.where("NOT redriven AND NOT failure")
    return actions.selectExpr("trigger", "slot", "explode(array_distinct(events)) AS event")


def uses(accounts: Accounts) -> DataFrame:
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


def notes(accounts: Accounts) -> DataFrame:
    counted = {column: f"CASE WHEN outcome = '{outcome}' THEN 1 ELSE 0 END" for column, outcome in OUTCOMES.items()}
    attempted = f"outcome NOT IN ('{OUTCOMES['taken']}', '{OUTCOMES['released']}')"
    mode = f"nullif({number_of(MODES, 'mode')}, 0) - 1"
    if not accounts.others:  # then there has been one for each trigger
        asked = (f"WHEN trigger = {quoted(name)} THEN {MODES.index(each)}" for name, each in accounts.modes.items())
        mode = f"CASE WHEN mode = '{EXACTLY_ONCE}' THEN {mode} {' '.join(asked)} END"
    return entries(
        accounts.invocations,
        str(KINDS[ACTION]),
        about={"action": "action"},
        columns={
            **counted,
            "trigger": number_of(accounts.names, "trigger"),
            "mode": mode,
            "mode_most": mode,
            "started": f"CASE WHEN {attempted} THEN started END",
            "ended": f"CASE WHEN {attempted} THEN ended END",
        },
    )


ABOUT_LETTERS = {
    "trigger": f"CASE WHEN reason IN {_OF_EVENTS} THEN trigger WHEN reason IN {_OF_HELD} THEN event_trigger END",
    "slot": f"CASE WHEN reason IN {_OF_EVENTS} THEN '' WHEN reason IN {_OF_HELD} THEN event_slot ELSE stage END",
    "partition": f"CASE WHEN reason IN {_OF_HELD} THEN event_partition ELSE partition END",
    "offset": f"CASE WHEN reason IN {_OF_HELD} THEN event_offset ELSE offset END",
    "reason": "reason",
}
"""What dead letters are known by that are not about actions."""


def letters(accounts: Accounts) -> DataFrame:
    """What the dead letters say of actions, and what of events."""
    history = accounts.history
    events = _to_judge(history, EVENT, "partition", "offset")
    triggers = inside(history.judged(Kind.TRIGGER), "partition", "offset")
    known = f"timestamp >= {accounts.letters_since}"
    of_events = f"(reason IN {_OF_EVENTS} AND {known} AND {events})"
    # What a plain trigger held for long has no place in the trigger topic any more.
    held = f"offset < 0 OR {triggers} OR {history.impossible(EVENT, 'event_partition', 'event_offset')}"
    of_held = f"(reason IN {_OF_HELD} AND {known} AND event_trigger IS NOT NULL AND ({held}))"
    of_unreadable = f"(reason = '{INVALID_RECORD}' AND stage = '{Stage.JOIN}' AND {known} AND {triggers})"
    of_held, of_unreadable = (each if accounts.whole else "false" for each in (of_held, of_unreadable))
    place = "partition", "offset"
    actions = f"({inside(history.known(Kind.ACTION), *place)} OR {history.never_buried(*place)})"
    of_actions = f"(reason IN {_OF_ACTIONS} AND action IS NOT NULL AND {actions})"
    return entries(
        accounts.letters.where(f"{of_events} OR {of_held} OR {of_unreadable} OR {of_actions}"),
        f"CASE WHEN {of_actions} THEN {KINDS[ACTION]} ELSE {KINDS[LETTER]} END",
        about={"action": "action", **ABOUT_LETTERS},
        columns={
            "found": f"CASE WHEN {of_actions} THEN 0 ELSE 1 END",
            "letters": f"CASE WHEN {of_actions} AND reason = '{ACTION_FAILED}' THEN 1 ELSE 0 END",
            "aside": f"CASE WHEN {of_actions} AND reason IN {_ASIDE} THEN 1 ELSE 0 END",
            "unbacked": f"CASE WHEN {of_actions} THEN -1 ELSE 0 END",
            "trigger": number_of(accounts.names, "trigger"),
        },
    )


UNREADABLE = {"slot": "'invoke'", "partition": "partition", "offset": "offset", "reason": f"'{INVALID_RECORD}'"}
"""What a dead letter about a record of the action topic is known by that cannot be read."""


def unreadable_actions(accounts: Accounts) -> DataFrame:
    """Records of the action topic that have to be in the dead letters as what they are."""
    return accounts.recorded.where(f"action IS NULL AND {accounts.finished()}")


def unreadable(accounts: Accounts) -> DataFrame:
    """Records of the action topic that are none of ours, and their dead letters."""
    there, about = unreadable_actions(accounts), UNREADABLE
    due = entries(there, str(KINDS[LETTER]), about=about, columns={"expected": "1"})
    said = f"reason = '{INVALID_RECORD}' AND stage = '{Stage.INVOKE}' AND {accounts.finished()}"
    found = entries(accounts.letters.where(said), str(KINDS[LETTER]), about=about, columns={"found": "1"})
    return due.unionByName(found)


# --- what is in order all the same ------------------------------------------------------------------------------------


_HELD_ABOUT = {name: name for name in ("trigger", "slot", "partition", "offset", "reason")}


def not_swept(accounts: Accounts) -> DataFrame:
    """Held events whose time is over: when exactly they are let go depends on how busy a sensor is.

    Those that its state topic still holds need no dead letter yet; those that the core would still hold may have one.
    """
    burying = [name for name, each in accounts.plan.triggers.items() if each.rules and each.rules.bury_expired]
    may_be = {
        EXPIRED_EVENT: F.col("trigger").isin(burying),
        FLUSHED: F.col("partition").isin(_gone_on(accounts.history)),
        SPEC_CHANGED: F.lit(True),  # another generation may have come while all this was read
    }
    reasons = F.array_compact(F.array(*(F.when(possible, F.lit(reason)) for reason, possible in may_be.items())))
    held = accounts.joined.where(f"kind = '{HELD}'").withColumn("reason", F.explode(reasons))
    held = held.selectExpr("trigger", "slot", "source_partition AS partition", "source_offset AS offset", "reason")
    may_be_there = entries(held, str(KINDS[LETTER]), about=_HELD_ABOUT, columns={"records": "1"})
    if not burying:
        return may_be_there
    state = facts.held_facts(accounts.history.tables[Kind.STATE]).where(F.col("trigger").isin(burying))
    state = state.withColumn("reason", F.lit(EXPIRED_EVENT))
    may_not_be_there = entries(state, str(KINDS[LETTER]), about=_HELD_ABOUT, columns={"unfinished": "1"})
    return may_be_there.unionByName(may_not_be_there)


def _gone_on(history: History) -> list[int]:
    """Partitions of the trigger topic in which there is more than what is judged."""
    ahead = {partition: (end, ENDLESS) for partition, (_, end) in history.judged(Kind.TRIGGER).items()}
    rows = history.tables[Kind.TRIGGER].where(inside(ahead, "partition", "offset")).select("partition").distinct()
    return [row["partition"] for row in rows.collect()]


def _refused(accounts: Accounts) -> DataFrame:
    """What is not there because the log would not take it: actions and trigger records by identity, and how often."""
    letters = accounts.letters.where(f"reason = '{UNPRODUCIBLE}'")
    of_triggers = {name: f"event_{name}" for name in ("trigger", "slot", "partition", "offset")}
    kinds = (
        (KINDS[TRIGGER], "event_trigger IS NOT NULL", of_triggers),
        (KINDS[ACTION], "action_within IS NOT NULL AND failed_within IS NULL", {"action": "action_within"}),
        (FAILURE, "failed_within IS NOT NULL", {"slot": "failed_within"}),
    )
    tables = [
        letters.where(which).selectExpr(f"{kind} AS kind", *identity(str(kind), about)) for kind, which, about in kinds
    ]
    met = reduce(DataFrame.unionByName, tables).groupBy("kind", "id_high", "id_low")
    return met.agg(F.count("*").alias("refused"))


def excused(totals: DataFrame, accounts: Accounts) -> DataFrame:
    """Totals in detail, without what is not there and need not be."""
    met = totals.join(_refused(accounts), ["kind", "id_high", "id_low"], "left")
    return met.where("refused IS NULL OR expected <= found OR expected - found > refused").drop("refused")
