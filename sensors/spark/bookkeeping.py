"""Puts the books of an audit together, in brief or in detail (`accounts` has the entries)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from eventbus.names import Kind
from sensors.dlqactions import dlq_name
from sensors.plan import SensorPlan
from sensors.spark import accounts as books
from sensors.spark import facts
from sensors.spark.accounts import Accounts
from sensors.spark.entries import UNSETTLED, added_up, in_brief, inside, quoted
from sensors.spark.history import History
from sensors.spark.known import known_since, with_ceilings, with_floors
from sensors.spark.routing import beginnings, joined, matched, routed
from sensors.spark.workers import LETTER, Deputy

BLOCK = 50_000
"""Offsets of a sequence that one task works out, about."""


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
    generation = plan.owner.generation
    history = with_floors(msgspec.structs.replace(history, generation=generation), plan)
    letters_since = known_since(history, Kind.DLQ)
    tables = history.tables
    names = [each for name in plan.triggers for each in _with_dlq(plan, name)]
    wanted = names if trigger is None else _with_dlq(plan, trigger)
    only = "true" if trigger is None else f"trigger IN ({', '.join(map(quoted, wanted))})"
    or_none = f"trigger IS NULL OR {only}"
    events = matched(history, deputy).where(or_none)
    if letters_since:
        events = events.where(f"kind <> '{LETTER}' OR source_timestamp >= {letters_since}")
    due_of_events = books.due_of_events(events, wanted)
    recorded = facts.action_facts(tables[Kind.ACTION]).where(or_none).persist(StorageLevel.MEMORY_AND_DISK)
    actions = recorded.where("action IS NOT NULL").where(only)
    with ThreadPoolExecutor() as beside:
        of_events = None if block is None else beside.submit(in_brief(due_of_events).collect)
        generations = [row[0] for row in actions.select("generation").distinct().orderBy("generation").collect()]
        others = {*generations, *history.origins} - {generation, 0}
        if any(other > generation for other in others):
            history = with_ceilings(history, actions)
        whole = history.complete(Kind.TRIGGER) and not history.floors.get(Kind.TRIGGER) and not others
        begun = None if whole else beginnings(actions, plan, history.judged(Kind.TRIGGER))
        to_join = routed(history, plan, begun, actions, block)
        of_known = inside(history.known(Kind.ACTION), "partition", "offset")
        accounts = Accounts(
            plan=plan,
            history=history,
            names=wanted,
            matched=events,
            joined=joined(to_join, history, deputy, payload=False).where(or_none),
            in_detail=joined(to_join, history, deputy, payload=True).where(or_none),
            recorded=recorded,
            actions=actions,
            invocations=facts.invocation_facts(tables[Kind.INVOCATION])
            .where("action IS NOT NULL")
            .where(only)
            .where(of_known),
            letters=facts.letter_facts(tables[Kind.DLQ]).where(or_none).persist(StorageLevel.MEMORY_AND_DISK),
            totals=actions,
            brief=(),
            whole=whole,
            generations=generations,
            letters_since=letters_since,
            known_since=max(history.since, known_since(history, Kind.INVOCATION), letters_since),
        )
        due_of_triggers = books.due_of_triggers(accounts)
        there = books.found_actions(accounts, begun).unionByName(books.letters(accounts))
        there = there.unionByName(books.unreadable(accounts))
        ledger = there.unionByName(books.notes(accounts)).unionByName(books.failures(accounts))
        if of_events is None:
            ledger = ledger.unionByName(due_of_events).unionByName(due_of_triggers).unionByName(books.uses(accounts))
            ledger = ledger.unionByName(books.not_swept(accounts)) if accounts.whole else ledger
            totals = _kept(books.excused(_totals(ledger), accounts))
            brief = in_brief(totals).collect()
        else:
            totals = _kept(_totals(ledger))
            kept = beside.submit(totals.count)
            brief = in_brief(due_of_triggers.unionByName(there)).collect() + of_events.result()
            kept.result()
    return msgspec.structs.replace(accounts, totals=totals, brief=brief)


def _totals(ledger: DataFrame) -> DataFrame:
    return added_up(ledger).where(UNSETTLED)


def _kept(totals: DataFrame) -> DataFrame:
    return totals.persist(StorageLevel.MEMORY_AND_DISK)


def _with_dlq(plan: SensorPlan, trigger: str) -> list[str]:
    """What its actions are called, and those of its `dlqTrigger`."""
    return [trigger, dlq_name(trigger)] if plan.triggers[trigger].has_dlq_trigger else [trigger]
