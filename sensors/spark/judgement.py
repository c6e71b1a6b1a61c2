"""Names what does not add up, by the same checks that judge the simulator and the storms.

Only what is left over comes here, at most `SHOWN` of a kind; how much there is in all is counted by Spark. Every check
is a difference of two sets, so what has cancelled out already does not change it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from eventbus.formats import ACTION_HEADER, Invocation, Source, action_fact, dead_letter, header, trigger_fact
from eventbus.names import Kind, Stage
from eventbus.ports import Record
from sensors.audit.actions import (
    Letters,
    check_letters,
    check_sequence,
    check_trigger_order,
    check_trigger_records,
    check_uses,
)
from sensors.audit.dlqactions import check_dlq_actions
from sensors.audit.expectations import Expectations, Expected, Match
from sensors.audit.invocations import check_invocations, recorded_calls
from sensors.audit.violations import Breach, Violation, event_places, place, place_of
from sensors.deadletters import ACTION_FAILED, INVALID_EVENT, INVALID_RECORD, NO_KEY, SPEC_CHANGED
from sensors.spark.accounts import ABOUT_LETTERS, UNREADABLE, Accounts, judged_actions, unreadable_actions, used_twice
from sensors.spark.driven import never_dead
from sensors.spark.entries import (
    CHANGED,
    DRIVEN_BACK,
    FAILURE,
    GIVEN_UP,
    KINDS,
    MISCOUNTED,
    MISTREATED,
    REPEATED,
    SETTLED,
    UNBALANCED,
    UNMATCHED,
    USE,
    identity,
)
from sensors.spark.failures import misstated
from sensors.spark.leftovers import Leftovers, forged
from sensors.spark.order import disordered_actions, disordered_trigger_records
from sensors.spark.report import SHOWN, Notice
from sensors.spark.workers import ACTION, LETTER, MISPLACED, REDRIVEN, TRIGGER

_NO_LETTERS = Letters.of(())
"""What the log would not take, and is excused for not being there, does not come here at all."""
_sources = msgspec.json.Decoder(tuple[Source, ...]).decode


class Findings(msgspec.Struct, frozen=True):
    """What there is to say against a sensor, and what its modes excuse."""

    violations: list[Violation]
    counts: Counter[Breach]
    given_up: list[Notice]
    repeated: list[Notice]


def acquit(accounts: Accounts) -> Findings | None:
    """Of accounts in brief: what a sensor's modes excuse, if there is nothing else to say against it.

    None: there is, and it takes accounts in detail to name it.
    """
    sums = Counter[tuple[int, str]]()
    for row in accounts.brief:
        sums.update({(row["kind"], half): row[half] for half in ("high", "low")})
    if any(sums[KINDS[kind], half] % 2**64 for kind in (TRIGGER, ACTION, LETTER) for half in ("high", "low")):
        return None
    told = {row["kind"] for row in accounts.brief}
    if KINDS[MISPLACED] in told or (DRIVEN_BACK in told and not never_dead(accounts).isEmpty()):
        return None
    with ThreadPoolExecutor() as beside:
        nothing_used_twice = beside.submit(used_twice(accounts).isEmpty)
        in_order = beside.submit(disordered_actions(accounts).isEmpty)
        well_said = beside.submit(misstated(accounts).isEmpty)
        counts = _counts(accounts, [_MISTREATED, _UNMATCHED, _CHANGED, _GIVEN_UP, _REPEATED])
    if any(counts[each] for each in (_MISTREATED, _UNMATCHED, _CHANGED)):
        return None
    if not all(each.result() for each in (nothing_used_twice, in_order, well_said)):
        return None
    return _excused(Leftovers(accounts), counts)


def judge(accounts: Accounts) -> Findings:
    """Of accounts in detail: look at everything that does not add up, and at what stands in the wrong order."""
    leftovers = Leftovers(accounts)
    counts = _counts(accounts, [*_CHECKS, _GIVEN_UP, _REPEATED])
    findings = _excused(leftovers, counts)
    for condition, check in _CHECKS.items():
        if counts[condition]:
            _note(findings, counts[condition], check(leftovers, leftovers.suspects(condition)))
    if count := (disordered := disordered_actions(accounts)).count():
        _note(findings, count, _order(leftovers, disordered.limit(SHOWN)))
    if count := (disordered := disordered_trigger_records(accounts)).count():
        _note(findings, count, _trigger_order(leftovers, disordered.limit(SHOWN)))
    if count := (driven := never_dead(accounts)).count():
        _note(findings, count, map(leftovers.undead_record, leftovers.trigger_records(driven.limit(SHOWN))))
    if count := (odd := misstated(accounts)).count():
        _note(findings, count, map(leftovers.forged_action, leftovers.records(Kind.ACTION, odd.limit(SHOWN))))
    suspected = sum(counts[condition] for condition in _CHECKS)
    if suspected and not findings.violations:  # nobody is acquitted because no check has a name for it
        what = f"what is there is not what should be there, in {suspected:,} cases"
        _note(findings, 1, [Violation(invariant="I1", breach=Breach.UNEXPLAINED, what=what)])
    return findings


def _counts(accounts: Accounts, conditions: Sequence[str]) -> dict[str, int]:
    [row] = accounts.totals.agg(*(F.expr(f"count_if({condition})") for condition in conditions)).collect()
    return dict(zip(conditions, row, strict=True))


def _excused(leftovers: Leftovers, counts: Mapping[str, int]) -> Findings:
    findings = Findings([], Counter(), [], [])
    if counts[_GIVEN_UP]:
        findings.given_up.extend(leftovers.notices(_GIVEN_UP, "was taken, and nobody knows whether it was done"))
    if counts[_REPEATED]:
        findings.repeated.extend(leftovers.notices(_REPEATED, "succeeded more than once"))
    return findings


def _note(findings: Findings, count: int, violations: Iterable[Violation]) -> None:
    found = list(violations)
    findings.counts.update(violation.breach for violation in found)
    if count > SHOWN:
        what = f"{count - SHOWN:,} more cases like the {SHOWN:,} that were looked at"
        found.append(Violation(invariant="I1", breach=Breach.UNEXPLAINED, what=what))
        findings.counts[Breach.UNEXPLAINED] += count - SHOWN
    findings.violations.extend(found)


# --- the checks -------------------------------------------------------------------------------------------------------


def _trigger_records(left: Leftovers, suspects: DataFrame) -> Iterator[Violation]:
    expected = Expectations()
    for row in left.events(left.accounts.matched, TRIGGER, suspects):
        match = _match(row)
        expected.to_join.add(match)
        expected.matched[match] = place(left.event_topic, row["source_partition"], row["source_offset"])
    found = [row for kind in (TRIGGER, REDRIVEN) for row in left.events(left.accounts.joined, kind, suspects)]
    places = _places(left, found)
    records = left.records(Kind.TRIGGER, places) if found else []
    yield from check_trigger_records(expected, left.event_topic, records, _NO_LETTERS)
    counts = Counter(_match(row) for row in found)
    for record in records:
        fact = trigger_fact(record)
        match = Match(fact.trigger, fact.source, fact.key)
        if match in expected.to_join and counts[match] == 1:
            yield forged(record, fact, event_places(left.event_topic, [fact.source]))


def _sequence(left: Leftovers, suspects: DataFrame) -> Iterator[Violation]:
    expected = Expectations()
    for row in left.events(left.accounts.matched, ACTION, suspects):
        source = Source(row["source_partition"], row["source_offset"], row["source_timestamp"])
        expected.actions.append(_expected(left, row, (source,), Stage.MATCH))
    for row in left.events(left.accounts.in_detail, ACTION, suspects):
        expected.actions.append(_expected(left, row, _sources(row["sources"]), Stage.JOIN))
    records = left.actions(suspects, judged_actions(left.accounts))
    known = {action.id for action in expected.actions}
    found = Counter(action_fact(record).id for record in records)
    lost = [action for action in expected.actions if action.id not in found]
    for record in _who_went_on(left, lost, suspects):
        expected.actions.append(_expected_of(left, record))
        records.append(record)
    yield from check_sequence(expected, left.event_topic, records, _NO_LETTERS)
    driven_back: defaultdict[str, list[Record]] = defaultdict(list)
    for record in left.actions(suspects, "redriven"):
        driven_back[action_fact(record).id].append(record)
    for record in records:
        fact = action_fact(record)
        if fact.id in known and found[fact.id] == 1:
            others = [each for each in driven_back[fact.id] if _said(each) != _said(record)]
            yield from map(left.forged_action, others or [record])


def _said(action: Record) -> tuple[object, ...]:
    return action.partition, action.key, action.value, header(action.headers, ACTION_HEADER)


def _uses(left: Leftovers, suspects: DataFrame) -> Iterator[Violation]:
    used = left.accounts.actions.where("NOT redriven AND NOT failure").selectExpr("*", "explode(events) AS event")
    about = {"trigger": "trigger", "slot": "slot", "partition": "event.partition", "offset": "event.offset"}
    rows = left.behind(used, USE, about, suspects)
    yield from check_uses(left.event_topic, left.records(Kind.ACTION, rows.select("partition", "offset").distinct()))


def _dead_letters(left: Leftovers, suspects: DataFrame) -> Iterator[Violation]:
    expected = Expectations()
    for row in left.events(left.accounts.matched, LETTER, suspects):
        where = place(left.event_topic, row["source_partition"], row["source_offset"])
        if row["reason"] == NO_KEY:
            expected.unkeyed[row["trigger"], where] += 1
        else:
            (expected.invalid if row["reason"] == INVALID_EVENT else expected.untransformed).add(where)
    for row in left.events(left.accounts.joined, LETTER, suspects):
        if row["reason"] == INVALID_RECORD:
            yield _unreadable(place(left.name.topic(Kind.TRIGGER), row["source_partition"], row["source_offset"]))
            continue
        (expected.parked if row["reason"] == SPEC_CHANGED else expected.buried).append(_match(row))
    rows = left.behind(left.accounts.letters, KINDS[LETTER], ABOUT_LETTERS, suspects)
    places = rows.selectExpr("letter_partition AS partition", "letter_offset AS offset")
    yield from check_letters(expected, left.event_topic, Letters.of(left.letters(places)))
    there = left.behind(unreadable_actions(left.accounts), KINDS[LETTER], UNREADABLE, suspects)
    for record in left.records(Kind.ACTION, there.select("partition", "offset")):
        yield _unreadable(place_of(record))


def _unreadable(where: str) -> Violation:
    what = "a record that cannot be read is not in the dead letters once"
    return Violation(invariant="I3", breach=Breach.LOST, what=what, place=where)


def _dlq_actions(left: Leftovers, suspects: DataFrame) -> Iterator[Violation]:
    made = left.accounts.actions.where("failure AND NOT redriven")
    actions = left.behind(made, FAILURE, {"slot": "failed_action"}, suspects).select("partition", "offset")
    given_up = left.accounts.letters.where(f"reason = '{ACTION_FAILED}'")
    letters = left.behind(given_up, FAILURE, {"slot": "action"}, suspects)
    places = letters.selectExpr("letter_partition AS partition", "letter_offset AS offset")
    yield from check_dlq_actions(
        {left.plan.owner.generation: left.plan},
        left.event_topic,
        left.records(Kind.ACTION, actions),
        left.letters(places),
    )


def _invocations(left: Leftovers, suspects: DataFrame) -> Iterator[Violation]:
    """Record by record: an action that was driven back from the dead letters has several."""
    records = left.actions(suspects)
    notes: defaultdict[str, list[Invocation]] = defaultdict(list)
    for _, note in left.notes(suspects):
        notes[note.action].append(note)
    told = left.letters_about(suspects)
    letters = Letters.of(told)
    buried = letters.buried(records)
    known: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        known[action_fact(record).id].append(record)
    for action, each in known.items():
        own = {place_of(record): [note for note in notes[action] if _is_about(note, record)] for record in each}
        strays = [note for note in notes[action] if not any(_is_about(note, record) for record in each)]
        found = [
            violation for record in each for violation in _judged(left, [record], own[place_of(record)], buried)
        ] + _judged(left, [], strays, set())
        yield from found or [_mistreated(left, each, notes[action], letters)]
    strangers = [note for action, each in notes.items() if action not in known for note in each]
    yield from _judged(left, [], strangers, set())
    yield from (left.baseless_letter(each) for each in told if dead_letter(each).action not in known)


def _is_about(note: Invocation, record: Record) -> bool:
    return (note.partition, note.offset) == (record.partition, record.offset)


def _mistreated(left: Leftovers, records: Sequence[Record], notes: Sequence[Invocation], letters: Letters) -> Violation:
    """It was done and put aside, or driven back without ever having been in the dead letters, and the like."""
    fact = action_fact(records[0])
    told = Counter(note.outcome for note in notes)
    told["in the dead letters"] = letters.withheld[fact.id] + (fact.id in letters.actions)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(told.items()) if count) or "nothing"
    return Violation(
        invariant="I7",
        breach=Breach.UNEXPLAINED,
        what=f"the action {fact.id} is there {len(records)} times, and that does not go with: {said}",
        trigger=fact.trigger,
        events=event_places(left.event_topic, (event.source for event in fact.events)),
        place=place_of(records[-1]),
        replica=notes[-1].replica if notes else fact.replica,
    )


def _judged(
    left: Leftovers, actions: Sequence[Record], notes: Sequence[Invocation], buried: set[str]
) -> list[Violation]:
    calls = recorded_calls(notes)
    return check_invocations(left.event_topic, actions, notes, buried=buried, calls=calls, mishaps=None).violations


def _trigger_order(left: Leftovers, disorder: DataFrame) -> Iterator[Violation]:
    pairs = disorder.selectExpr("partition", "explode(array(before_offset, offset)) AS offset").distinct()
    yield from check_trigger_order(left.event_topic, left.trigger_records(pairs))


def _order(left: Leftovers, disorder: DataFrame) -> Iterator[Violation]:
    """Pairs of neighbours that stand in the wrong order."""
    rows = disorder.collect()
    offsets = {(row["partition"], offset) for row in rows for offset in (row["offset"], row["before_offset"])}
    places = disorder.sparkSession.createDataFrame(sorted(offsets), "partition int, offset bigint")
    actions = left.accounts.actions
    pairs = actions.join(F.broadcast(places), ["partition", "offset"], "left_semi").select("action")
    # One that is there twice is not out of order where it stands again.
    known = actions.join(F.broadcast(pairs), "action", "left_semi").select("partition", "offset")
    records = left.records(Kind.ACTION, known)
    expected = Expectations()
    expected.actions = sorted((_expected_of(left, record) for record in records), key=lambda each: each.origin)
    yield from check_sequence(expected, left.event_topic, records, _NO_LETTERS)


_GIVEN_UP = f"kind = {KINDS[ACTION]} AND {SETTLED} AND {GIVEN_UP}"
_REPEATED = f"kind = {KINDS[ACTION]} AND {SETTLED} AND {REPEATED}"
_MISTREATED = f"kind = {KINDS[ACTION]} AND ({MISTREATED})"
_UNMATCHED = f"kind = {FAILURE} AND ({UNMATCHED})"
_CHANGED = f"kind = {KINDS[ACTION]} AND {CHANGED}"
_Check = Callable[[Leftovers, DataFrame], Iterable[Violation]]
_CHECKS: Mapping[str, _Check] = {
    f"kind = {KINDS[TRIGGER]} AND ({UNBALANCED})": _trigger_records,
    f"kind = {KINDS[ACTION]} AND ({UNBALANCED})": _sequence,
    f"kind = {USE} AND found > 1": _uses,
    f"kind = {KINDS[LETTER]} AND ({MISCOUNTED})": _dead_letters,
    _UNMATCHED: _dlq_actions,
    _MISTREATED: _invocations,
}


# --- small things -----------------------------------------------------------------------------------------------------


def _match(row: Row) -> Match:
    timestamp = row["source_timestamp"] if "source_timestamp" in row else row["timestamp"]
    return Match(row["trigger"], Source(row["source_partition"], row["source_offset"], timestamp), row["slot"] or "")


def _expected(left: Leftovers, row: Row, sources: Sequence[Source], stage: Stage) -> Expected:
    joined = stage is Stage.JOIN
    at = (row["partition"], row["offset"]) if joined else (row["source_partition"], row["source_offset"])
    return Expected(
        id=row["action"],
        trigger=row["trigger"],
        sources=tuple(sources),
        lane=(row["action"],),  # `_order` judges the order, of all that is there
        origin=(stage, *at),
        place=place(left.name.input_topic(stage), *at),
        events=event_places(left.event_topic, sources),
        key=row["slot"] or "",
    )


def _expected_of(left: Leftovers, record: Record) -> Expected:
    """An action that is there, as one that should be."""
    fact = action_fact(record)
    sources = tuple(event.source for event in fact.events)
    stage = Stage.MATCH if fact.joined is None else Stage.JOIN
    at = (sources[0].partition, sources[0].offset) if fact.joined is None else fact.joined
    return Expected(
        id=fact.id,
        trigger=fact.trigger,
        sources=sources,
        lane=(record.key, stage),
        origin=(stage, *at),
        place=place(left.name.input_topic(stage), *at),
        events=event_places(left.event_topic, sources),
        key=fact.key,
    )


def _who_went_on(left: Leftovers, lost: Sequence[Expected], suspects: DataFrame) -> list[Record]:
    """For each action that is lost, the next one from the same partition of the same input that is as it should be."""
    if not lost:
        return []
    rows = [(action.origin[0] is Stage.MATCH, *action.origin[1:]) for action in lost]
    spark = left.accounts.actions.sparkSession
    gaps = spark.createDataFrame(rows, "direct boolean, origin_partition int, gap bigint")
    actions = left.accounts.actions.where("NOT redriven AND NOT failure").selectExpr(
        *("partition", "offset", "origin_partition", "origin_offset", "joined_offset IS NULL AS direct"),
        *identity(str(KINDS[ACTION]), {"action": "action"}),
    )
    actions = actions.join(F.broadcast(suspects), ["id_high", "id_low"], "left_anti")
    later = actions.join(F.broadcast(gaps), ["direct", "origin_partition"]).where("origin_offset >= gap")
    nearest = later.groupBy("direct", "origin_partition", "gap").agg(
        F.min_by(F.struct("partition", "offset"), "origin_offset").alias("next")
    )
    return left.records(Kind.ACTION, nearest.select("next.partition", "next.offset").distinct())


def _places(left: Leftovers, rows: Sequence[Row]) -> DataFrame:
    spark = left.accounts.totals.sparkSession
    return spark.createDataFrame([(row["partition"], row["offset"]) for row in rows], "partition int, offset bigint")
