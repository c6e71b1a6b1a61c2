"""Double-entry bookkeeping: whatever should be there is entered on one side, whatever is there on the other.

An *entry* stands for one record, or one step in the life of an action, in fixed-width columns only, so that Spark adds
them up without sorting. Entries of the same `kind` and `id_…` (128 bits of hash) are about the same thing. What adds up
to the same on both sides is as it should be and is never looked at again; all else is judged by the checks of
`sensors.audit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventbus.metadata import InvokeCommit
from sensors.outcomes import DEAD_LETTERED, FAILED, LOST, RELEASED, SUCCEEDED, TAKEN
from sensors.spark.records import Offsets
from sensors.spark.workers import ACTION, HELD, LETTER, MISPLACED, READ, REDRIVEN, TRIGGER, UNUSED
from sensors.tasks import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE

KINDS = {TRIGGER: 1, REDRIVEN: 1, ACTION: 2, LETTER: 3, UNUSED: 4, HELD: 5, READ: 8, MISPLACED: 9}
USE, FAILURE, DRIVEN_BACK = 6, 7, 10
"""An event that a trigger has used, an action that is due because another was given up, and a trigger record that says
that it was a dead letter."""
MODES = ("", AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)
OUTCOMES = {
    "taken": TAKEN,
    "released": RELEASED,
    "succeeded": SUCCEEDED,
    "failed": FAILED,
    "dead": DEAD_LETTERED,
    "lost": LOST,
}
"""Columns that count the invocation records of these outcomes."""

_SUMS = ("expected", "found", "records", "driven_back", "aside", "letters", "unbacked", "unfinished", *OUTCOMES)
_LEAST = ("content", "trigger", "mode", "reason", "written", "started")
_MOST = ("content_most", "mode_most", "newest_event", "ended")
_ABOUT = ("action", "trigger", "slot", "partition", "offset", "reason")


def entries(rows: DataFrame, kind: str, *, about: Mapping[str, str], columns: Mapping[str, str]) -> DataFrame:
    """Entries of these rows; everything is SQL."""
    selected = [f"CAST({kind} AS int) AS kind", *identity(kind, about)]
    for name in (*_SUMS, *_LEAST, *_MOST):
        value = columns.get(name, "0" if name in _SUMS else "NULL")
        selected.append(f"CAST({value} AS bigint) AS {name}")
    return rows.selectExpr(*selected)


def identity(kind: str, about: Mapping[str, str]) -> list[str]:
    """SQL: what an entry is about. An action is known by its id alone, anything else by all the rest."""
    rest = ", ".join(about.get(name, "NULL") for name in _ABOUT[1:])
    action = about.get("action", "NULL")
    return [
        f"CASE WHEN {kind} = {KINDS[ACTION]} THEN xxhash64({action}) ELSE xxhash64({rest}) END AS id_high",
        f"CASE WHEN {kind} = {KINDS[ACTION]} THEN xxhash64('low', {action}) ELSE xxhash64('low', {rest}) END AS id_low",
    ]


def added_up(all_entries: DataFrame) -> DataFrame:
    """One row for everything that there are entries about."""
    met = all_entries.repartition("id_high")  # or else Spark first adds up what has not met yet, and gains nothing
    return met.groupBy("kind", "id_high", "id_low").agg(
        *(F.sum(name).alias(name) for name in _SUMS),
        *(F.min(name).alias(name) for name in _LEAST),
        *(F.max(name).alias(name) for name in _MOST),
    )


def in_brief(rows: DataFrame) -> DataFrame:
    """Entries, or what they add up to, by kind, trigger and reason.

    `high` and `low` are 0 (128 bits of it) where all of a kind that is expected is found, as often and as it should be:
    each adds its hash on the one side and takes it away on the other. Nothing has to meet for that.
    """
    sums = {"high": "xxhash64(id_high, id_low, content)", "low": "xxhash64(id_low, id_high, content)"}
    return rows.groupBy("kind", "trigger", "reason").agg(
        F.sum("found").alias("found"),
        *(F.expr(f"sum((expected - found) * {hashed})").alias(name) for name, hashed in sums.items()),
    )


def kind_of(column: str) -> str:
    """SQL: the number of what a worker calls a kind."""
    cases = " ".join(f"WHEN '{name}' THEN {number}" for name, number in KINDS.items())
    return f"CASE {column} {cases} END"


def number_of(names: Sequence[str], column: str) -> str:
    """SQL: the place of a name in a list, from 1; 0 where it is not in there."""
    listed = ", ".join(quoted(name) for name in names)
    return f"coalesce(array_position(array({listed}), {column}), 0)" if names else "0"


def inside(spans: Offsets, partition: str, offset: str) -> str:
    """SQL: whether a place lies in these spans."""
    if not spans:
        return "false"
    known = range(max(spans) + 1)
    lows, highs = (", ".join(f"{spans[each][side]}L" if each in spans else "NULL" for each in known) for side in (0, 1))
    return f"coalesce({offset} >= array({lows})[{partition}] AND {offset} < array({highs})[{partition}], false)"


def under_way(commits: Mapping[int, InvokeCommit]) -> str:
    """SQL: whether an action is not finished yet, by what its stage has committed."""
    done = ["false"]
    for partition, commit in commits.items():
        ranges = [f"offset < {commit.offset}L"]
        ranges += [f"(offset >= {start}L AND offset < {end}L)" for start, end in commit.finished]
        done.append(f"(partition = {partition} AND ({' OR '.join(ranges)}))")
    return f"NOT ({' OR '.join(done)})"


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# --- what does not add up ---------------------------------------------------------------------------------------------

_TAKEN = "(taken - released)"
_DONE = "(succeeded + dead)"
_BEGUN = f"({_DONE} > 0 OR (mode = {MODES.index(AT_MOST_ONCE)} AND {_TAKEN} > 0))"
"""At most once, what was taken is never put aside: whoever drove it back would do it again."""
_DUE = "(records - aside)"
"""Of the records of an action, those that were not put aside because of a pause, or because their trigger is gone."""
_ONCE = "succeeded <= greatest(records - driven_back, 1)"
"""An action that is due again, because another was given up again, is another record of the same name."""

UNBALANCED = "expected <> found OR found > 1 OR NOT content <=> content_most"
"""Of actions and trigger records: one that is not there, that nothing has caused, that is there twice, or differs."""
MISCOUNTED = "found > expected + records OR found + unfinished < expected"
"""Of dead letters, of which there may be several about the same event.

`records` counts those that may be there already, `unfinished` those that may not be there yet.
"""
UNMATCHED = "expected <> found"
"""Of the actions of `dlqTrigger`s: one for every time that the action before them was given up."""

UNSETTLED = f"kind NOT IN ({KINDS[TRIGGER]}, {USE}, {KINDS[LETTER]}) OR {UNBALANCED}"
"""What there is more to say about than that it is as it should be."""

SETTLED = "records > 0 AND unfinished = 0"
"""Of actions: all is told, and what is missing will not come."""
GIVEN_UP = f"mode = {MODES.index(AT_MOST_ONCE)} AND {_TAKEN} = {_DUE} AND {_DONE} < {_DUE} AND {_ONCE}"
"""At most once: taken, and nobody knows whether it was done. That is what this mode may do."""
REPEATED = f"mode = {MODES.index(AT_LEAST_ONCE)} AND NOT {_ONCE}"
"""At least once: done again. That is what this mode may do."""
MISTREATED = f"""
    (records = 0 AND taken + released + succeeded + failed + dead + lost + letters + aside > 0)
    OR unbacked > 0
    OR (records > 0 AND unfinished = 0 AND (dead <> letters OR {_DUE} < 0 OR ({_DUE} = 0 AND {_BEGUN})))
    OR (unfinished = 0 AND {_DUE} > 0 AND NOT coalesce(CASE
        WHEN mode <> mode_most THEN {_TAKEN} + {_DONE} >= {_DUE}
        WHEN mode = {MODES.index(AT_MOST_ONCE)} THEN {_TAKEN} = {_DUE} AND {_DONE} + lost <= {_DUE} AND {_ONCE}
        WHEN mode = {MODES.index(AT_LEAST_ONCE)} THEN {_DONE} >= {_DUE}
        WHEN mode = {MODES.index(EXACTLY_ONCE)} THEN {_DONE} = {_DUE} AND {_ONCE}
    END, false))
"""
"""Of actions: not invoked as their mode allows, invoked without being there, or driven back from nowhere.

Whoever gives an action up writes its dead letter in the same transaction. Where a change of the spec has changed the
mode of what was under way, each record was taken or done.
"""
CHANGED = "NOT content <=> content_most"
"""Of actions: one that was driven back says something else than before."""
