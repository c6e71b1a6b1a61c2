"""The records behind what does not add up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from eventbus.errors import FormatError
from eventbus.formats import ActionFact, Invocation, TriggerFact, action_fact, dead_letter, invocation, trigger_fact
from eventbus.names import Kind
from eventbus.ports import Record
from sensors.audit.violations import Breach, Violation, event_places, place_of
from sensors.spark.accounts import Accounts
from sensors.spark.entries import KINDS, identity
from sensors.spark.history import as_python
from sensors.spark.report import SHOWN, Notice
from sensors.spark.workers import ACTION

T = TypeVar("T")

_WORKED_OUT = {
    "action": "action",
    "trigger": "trigger",
    "slot": "slot",
    "partition": "source_partition",
    "offset": "source_offset",
    "reason": "reason",
}


class Leftovers:
    """Finds them, at most `SHOWN` of a kind."""

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.plan = accounts.plan
        self.name = accounts.plan.name
        self.event_topic = accounts.plan.name.event_topic

    def suspects(self, condition: str) -> DataFrame:
        """Some of them, and always the same: enough to see what is wrong."""
        found = self.accounts.totals.where(condition).select("id_high", "id_low")
        return found.orderBy("id_high", "id_low").limit(SHOWN)

    def behind(self, rows: DataFrame, kind: int, about: Mapping[str, str], suspects: DataFrame) -> DataFrame:
        """Of these rows, those that the suspects are about."""
        identified = rows.selectExpr("*", *identity(str(kind), about))
        return identified.join(F.broadcast(suspects), ["id_high", "id_low"], "left_semi")

    def events(self, rows: DataFrame, kind: str, suspects: DataFrame) -> list[Row]:
        """Of what match and join have worked out."""
        return self.behind(rows.where(F.col("kind") == kind), KINDS[kind], _WORKED_OUT, suspects).collect()

    def actions(self, suspects: DataFrame, condition: str = "true") -> list[Record]:
        about = {"action": "action"}
        rows = self.behind(self.accounts.actions.where(condition), KINDS[ACTION], about, suspects)
        return self.records(Kind.ACTION, rows.select("partition", "offset"))

    def records(self, kind: Kind, places: DataFrame) -> list[Record]:
        """The records themselves, in the order of their log."""
        rows = self.accounts.history.tables[kind].join(F.broadcast(places), ["partition", "offset"], "left_semi")
        found = as_python(self.name.topic(kind), rows.collect())
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def trigger_records(self, places: DataFrame) -> list[Record]:
        """Those that can be read: Spark reads more than the core does."""
        return [each for each in self.records(Kind.TRIGGER, places) if _readable(trigger_fact, each) is not None]

    def notes(self, suspects: DataFrame) -> list[tuple[Record, Invocation]]:
        rows = self.behind(self.accounts.invocations, KINDS[ACTION], {"action": "action"}, suspects)
        places = rows.selectExpr("note_partition AS partition", "note_offset AS offset")
        read = ((record, _readable(invocation, record)) for record in self.records(Kind.INVOCATION, places))
        return [(record, note) for record, note in read if note is not None]

    def letters(self, places: DataFrame) -> list[Record]:
        """Those that can be read."""
        return [record for record in self.records(Kind.DLQ, places) if _readable(dead_letter, record) is not None]

    def letters_about(self, suspects: DataFrame) -> list[Record]:
        rows = self.behind(self.accounts.letters, KINDS[ACTION], {"action": "action"}, suspects)
        return self.letters(rows.selectExpr("letter_partition AS partition", "letter_offset AS offset"))

    def notices(self, condition: str, what: str) -> list[Notice]:
        suspects = self.suspects(condition)
        places = {action_fact(record).id: place_of(record) for record in self.actions(suspects)}
        notes: defaultdict[str, list[Invocation]] = defaultdict(list)
        for _, note in self.notes(suspects):
            notes[note.action].append(note)
        return [
            Notice(
                trigger=each[-1].trigger,
                action=action,
                place=places.get(action, ""),
                replicas=tuple(note.replica for note in each),
                times=tuple(note.ended for note in each),
                what=what,
            )
            for action, each in sorted(notes.items(), key=lambda item: item[1][0].ended)
        ]

    def forged_action(self, record: Record) -> Violation:
        fact = action_fact(record)
        return forged(record, fact, event_places(self.event_topic, (event.source for event in fact.events)))

    def undead_record(self, record: Record) -> Violation:
        fact = trigger_fact(record)
        what = "a trigger record that says that it was driven back, and was no such dead letter, or not as often"
        return forged(record, fact, event_places(self.event_topic, [fact.source]), what)

    def baseless_letter(self, record: Record) -> Violation:
        fact = dead_letter(record)
        what = f"a dead letter about the action {fact.action}, which is not there"
        return Violation(
            invariant="I3",
            breach=Breach.UNEXPLAINED,
            what=what,
            trigger=fact.trigger or "",
            place=place_of(record),
            replica=fact.replica,
        )


def forged(
    record: Record,
    fact: ActionFact | TriggerFact,
    events: tuple[str, ...],
    what: str = "a record whose content is not what its events call for",
) -> Violation:
    return Violation(
        invariant="I1",
        breach=Breach.UNEXPLAINED,
        what=what,
        trigger=fact.trigger,
        events=events,
        place=place_of(record),
        replica=fact.replica,
    )


def _readable(read: Callable[[Record], T], record: Record) -> T | None:
    """None: it is somebody else's, however much it looks like one of ours."""
    try:
        return read(record)
    except FormatError:
        return None
