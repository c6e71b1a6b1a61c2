"""Puts the books of an audit together, in brief or in detail (`accounts` has the entries)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from eventbus.errors import ConfigError
from eventbus.names import Kind
from sensors.dlqactions import dlq_name
from sensors.plan import SensorPlan
from sensors.spark import accounts as books
from sensors.spark import facts
from sensors.spark.accounts import Accounts
from sensors.spark.entries import UNSETTLED, added_up, in_brief, inside, quoted
from sensors.spark.failures import failures
from sensors.spark.history import History
from sensors.spark.known import known_since, with_ceilings, with_floors, with_letters
from sensors.spark.records import RECORD
from sensors.spark.routing import Seen, beginnings, joined, matched, routed, seen_by
from sensors.spark.workers import LETTER, Deputy, decoding

BLOCK = 50_000
"""Offsets of a sequence that one task works out, about."""


def keep_accounts(
    history: History, deputy: Deputy, trigger: str | None = None, *, block: int = BLOCK, before: Accounts | None = None
) -> Accounts:
    """Work it all out, in brief or, if it was done so `before`, in detail. `trigger` is the one in question, or all.

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
    _check_spec(history, plan)
    history = with_floors(msgspec.structs.replace(history, generation=generation), plan)
    letters_since = known_since(history, Kind.DLQ)
    history = with_letters(history, letters_since)
    tables = history.tables
    names = [each for name in plan.triggers for each in _with_dlq(plan, name)]
    wanted = names if trigger is None else _with_dlq(plan, trigger)
    only = "true" if trigger is None else f"trigger IN ({', '.join(map(quoted, wanted))})"
    or_none = f"trigger IS NULL OR {only}"
    events = matched(history, deputy, observed=before is None).where(or_none)
    if letters_since:
        events = events.where(f"kind <> '{LETTER}' OR source_timestamp >= {letters_since}")
    due_of_events = books.due_of_events(events, wanted)
    events_in_brief = in_brief(due_of_events)
    in_action_topic = tables[Kind.ACTION]
    if before is not None:
        in_action_topic = in_action_topic.mapInArrow(decoding(plan.name.topic(Kind.ACTION)), RECORD)
    recorded = facts.action_facts(in_action_topic)
    recorded = recorded.where(f"action IS NULL OR {only}").persist(StorageLevel.MEMORY_AND_DISK)
    actions = recorded.where("action IS NOT NULL").where(only)
    with ThreadPoolExecutor() as beside:
        of_events = beside.submit(events_in_brief.collect) if before is None else None
        others = _others(history, actions)
        if any(other > generation for other in others):
            history = with_ceilings(history, actions)
        whole = history.complete(Kind.TRIGGER) and not history.floors.get(Kind.TRIGGER) and not others
        begun = None if whole else beginnings(history, actions, plan)
        to_join = routed(history, plan, begun, actions, block if before is None else None)
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
            .where(f"{of_known} OR {history.impossible(Kind.ACTION, 'partition', 'offset')}"),
            letters=facts.letter_facts(tables[Kind.DLQ]).where(or_none).persist(StorageLevel.MEMORY_AND_DISK),
            totals=actions,
            brief=(),
            seen=Seen(),
            whole=whole,
            others=others,
            modes=deputy.modes,
            letters_since=letters_since,
            known_since=max(history.since, known_since(history, Kind.INVOCATION), letters_since),
        )
        due_of_triggers = books.due_of_triggers(accounts)
        there = books.found_actions(accounts, begun).unionByName(books.letters(accounts))
        there = there.unionByName(books.unreadable(accounts))
        ledger = there.unionByName(books.notes(accounts)).unionByName(failures(accounts))
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
    seen = seen_by(events_in_brief) if before is None else before.seen
    return msgspec.structs.replace(accounts, totals=totals, brief=brief, seen=seen)


def _check_spec(history: History, plan: SensorPlan) -> None:
    """Who did what another manifest says is not to be judged by this one."""
    owner = plan.owner
    if any(each.owner.generation == owner.generation and each.owner != owner for each in history.commits.all()):
        raise ConfigError(
            f"this is not the manifest that the sensor {plan.name} runs with as generation {owner.generation}: "
            "take that one, or give this one a generation of its own (metadata.generation)"
        )


def _others(history: History, actions: DataFrame) -> list[int]:
    """Generations that have been at work beside the one that is judged.

    None is later than all that have committed, nor earlier than the first, where that is noted.
    """
    written = {row[0] for row in actions.select("generation").distinct().collect()}
    committed = {*history.origins, *(commit.owner.generation for commit in history.commits.all())}
    possible = {each for each in written if min(history.origins, default=0) <= each <= max(committed, default=0)}
    return sorted({*possible, *history.origins} - {history.generation, 0})


def _totals(ledger: DataFrame) -> DataFrame:
    return added_up(ledger).where(UNSETTLED)


def _kept(totals: DataFrame) -> DataFrame:
    return totals.persist(StorageLevel.MEMORY_AND_DISK)


def _with_dlq(plan: SensorPlan, trigger: str) -> list[str]:
    """What its actions are called, and those of its `dlqTrigger`."""
    return [trigger, dlq_name(trigger)] if plan.triggers[trigger].has_dlq_trigger else [trigger]
