"""Gathers the evidence about a running sensor from its topics, without taking part: for `eventbus explain`.

Nothing is written, created or committed, and no group is joined. What is read is bounded.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice

import msgspec

from eventbus.cloudevents import from_kafka
from eventbus.errors import FormatError, InvalidEvent
from eventbus.formats import ActionFact, action_fact, invocation
from eventbus.hashing import partition_of
from eventbus.metadata import Owner, decode_invoke, decode_join, decode_match
from eventbus.names import Kind, Stage
from eventbus.ports import Clock, Cluster, Committed, Reader, Record
from eventbus.topics import Topology
from sensors.actionrecords import events_by_dependency
from sensors.control import paused_triggers
from sensors.evidence import (
    Evidence,
    Firing,
    Invoked,
    Recent,
    RecentEvents,
    StageProgress,
    Tally,
    TriggerEvidence,
    TriggerState,
)
from sensors.explain import Explainer, ids_of
from sensors.inspection import held_state, read_range, stable_commits
from sensors.pauses import ALL
from sensors.plan import SensorPlan
from sensors.reading import in_order_of_time, newest, ranges_between
from sensors.redrive import Box, Selection, read_letters

RECENT_EVENTS = 1000
"""So many are looked at where no time is given."""
_MOST_EVENTS = 100_000
"""So many of each partition, whatever time is given."""
_MOST_RECORDS = 1000
"""So many of each partition of any other topic."""
_MOST_INVOCATIONS = 50_000
"""So many after the firing."""
_CLOCKS_DIFFER_MS = 60_000


class Question(msgspec.Struct, frozen=True):
    """What somebody wants to know."""

    triggers: Sequence[str]
    key: str | None = None
    since: int | None = None


class _Waiting(msgspec.Struct):
    tally: Tally = msgspec.field(default_factory=Tally)
    since: int | None = None


class Investigation:
    """One look at one sensor."""

    def __init__(
        self, cluster: Cluster, plan: SensorPlan, topology: Topology, clock: Clock, question: Question
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._name = plan.name
        self._topology = topology
        self._clock = clock
        self._question = question
        self._waiting: defaultdict[str, _Waiting] = defaultdict(_Waiting)
        self._owner: Owner | None = None
        self._events = 0
        self._since: int | None = None
        self._unreadable = Tally()

    def evidence(self) -> Evidence:
        with closing(self._cluster.reader()) as reader:
            stages = [self._progress(reader, stage) for stage in Stage]
            held = held_state(self._cluster, self._plan, self._topology, self._clock)
            recent = self._recent(reader)
            firings = self._last_firings(reader)
        letters = self._dead_letters()
        paused = paused_triggers(self._cluster, self._name, self._clock)
        return Evidence(
            sensor=str(self._name),
            now=self._clock.now_ms(),
            stages=stages,
            other_generation=self._other_generation(),
            events=self._events,
            since=self._since,
            unreadable=self._unreadable,
            triggers=[
                msgspec.structs.replace(
                    self._about(name, held, recent, firings, letters), paused_since=paused.get(name, paused.get(ALL))
                )
                for name in self._question.triggers
            ],
            dead_letters=letters.get(None, {}),
            key=self._question.key,
        )

    def _about(
        self,
        name: str,
        held: Sequence[TriggerState],
        recent: Mapping[str, Recent],
        firings: Mapping[str, Firing],
        letters: Mapping[str | None, dict[str, Tally]],
    ) -> TriggerEvidence:
        trigger = self._plan.triggers[name]
        wanted = self._plan.wanted_by(name)
        key = self._question.key
        return TriggerEvidence(
            trigger=name,
            condition=str(trigger.condition),
            asks_for={each.name: (each.source, each.event_name) for each in wanted.values()},
            joins=not trigger.direct,
            held=[state for state in held if state.trigger == name and (key is None or state.key == key)],
            recent=recent[name],
            last=firings.get(name),
            waiting=self._waiting[name].tally,
            waiting_since=self._waiting[name].since,
            dead_letters=letters.get(name, {}),
        )

    # --- stages -----------------------------------------------------------------------------------------------------

    def _progress(self, reader: Reader, stage: Stage) -> StageProgress:
        topic, group = self._name.input_topic(stage), self._name.group(stage)
        behind = 0
        oldest: int | None = None
        commits = stable_commits(self._cluster, group, topic, self._clock)
        for partition, committed in commits.items():
            count, since = self._lag(reader, stage, partition, committed)
            behind += count
            oldest = min((each for each in (oldest, since) if each is not None), default=None)
        begun = any(committed is not None for committed in commits.values())
        return StageProgress(stage, self._cluster.members(group), behind, oldest, begun)

    def _lag(self, reader: Reader, stage: Stage, partition: int, committed: Committed | None) -> tuple[int, int | None]:
        """How many records a stage has not dealt with, and since when. Transaction markers are no records."""
        topic = self._name.input_topic(stage)
        first, end = reader.offsets(topic, partition)
        position, finished = (first, ()) if committed is None else self._position(stage, committed)
        with closing(read_range(reader, topic, partition, start=position, end=end, clock=self._clock)) as records:
            looked_at = list(islice(records, _MOST_RECORDS))
        pending = [each for each in looked_at if not any(start <= each.offset < stop for start, stop in finished)]
        if stage is Stage.INVOKE:
            self._note_waiting(pending)
        count = len(pending) if len(looked_at) < _MOST_RECORDS else end - position
        return count, pending[0].timestamp if pending else None

    def _position(self, stage: Stage, committed: Committed) -> tuple[int, Sequence[tuple[int, int]]]:
        match stage:
            case Stage.MATCH:
                owner = decode_match(committed.metadata)
                if self._owner is None or self._owner.generation < owner.generation:
                    self._owner = owner
                return committed.offset, ()
            case Stage.JOIN:
                return decode_join(committed.offset, committed.metadata).position, ()
            case Stage.INVOKE:
                return committed.offset, decode_invoke(committed.offset, committed.metadata).finished

    def _other_generation(self) -> int | None:
        """Generations can be given on the command line: it is the digest that tells."""
        owner = self._owner
        return None if owner is None or owner.digest == self._plan.owner.digest else owner.generation

    def _note_waiting(self, records: Sequence[Record]) -> None:
        for record in records:
            fact = _action(record)
            if fact is not None and self._question.key in (None, fact.key):
                waiting = self._waiting[fact.trigger]
                waiting.tally.add(waiting.tally.example or fact.id)
                waiting.since = min(waiting.since or record.timestamp, record.timestamp)

    # --- events -----------------------------------------------------------------------------------------------------

    def _recent(self, reader: Reader) -> dict[str, Recent]:
        explainer = Explainer(self._plan)
        counted = RecentEvents(self._plan, self._question.triggers, self._question.key)
        for record in self._recent_records(reader):
            self._events += 1
            self._since = record.timestamp if self._since is None else self._since
            try:
                event = from_kafka(record.headers, record.value)
            except InvalidEvent as error:
                self._unreadable.add(f"{record.partition}:{record.offset}", str(error))
                continue
            counted.note(event, explainer.feed(event, record.timestamp))
        return counted.finish()

    def _recent_records(self, reader: Reader) -> Iterator[Record]:
        topic, since = self._name.event_topic, self._question.since
        most = RECENT_EVENTS if since is None else _MOST_EVENTS
        ranges = newest(ranges_between(reader, self._cluster, topic, since), most)
        records = (timed.record for timed in in_order_of_time(reader, topic, ranges, self._clock))
        yield from deque(records, RECENT_EVENTS) if since is None else records

    # --- firings ----------------------------------------------------------------------------------------------------

    def _last_firings(self, reader: Reader) -> dict[str, Firing]:
        topic = self._name.topic(Kind.ACTION)
        ranges = newest(ranges_between(reader, self._cluster, topic, None), _MOST_RECORDS)
        last: dict[str, tuple[ActionFact, Record]] = {}
        for timed in in_order_of_time(reader, topic, ranges, self._clock):
            fact = _action(timed.record)
            if fact is not None and fact.trigger in self._question.triggers and self._question.key in (None, fact.key):
                last[fact.trigger] = fact, timed.record
        return {name: self._firing(reader, fact, record) for name, (fact, record) in last.items()}

    def _firing(self, reader: Reader, fact: ActionFact, record: Record) -> Firing:
        try:
            used = {name: [each.id for each in many] for name, many in events_by_dependency(fact, record.value).items()}
        except (FormatError, InvalidEvent):
            used = {}
        events = ids_of(self._plan.triggers[fact.trigger], used)
        return Firing(fact.id, record.timestamp, events, fact.key, self._invoked(reader, fact.id, record.timestamp))

    def _invoked(self, reader: Reader, action: str, fired_at: int) -> Invoked | None:
        topic = self._name.topic(Kind.INVOCATION)
        partition = partition_of(action.encode(), self._topology.invocation_partitions)
        start = reader.offset_at(topic, partition, fired_at - _CLOCKS_DIFFER_MS)
        found = None
        with closing(read_range(reader, topic, partition, start=start, end=None, clock=self._clock)) as records:
            for record in islice(records, _MOST_INVOCATIONS):
                if record.key == action.encode():
                    fact = invocation(record)
                    found = Invoked(fact.outcome, fact.attempt, fact.ended, fact.status, fact.error)
        return found

    def _dead_letters(self) -> dict[str | None, dict[str, Tally]]:
        """By trigger and reason; what was driven back is not counted."""
        letters: defaultdict[str | None, dict[str, Tally]] = defaultdict(dict)
        box = Box.of_sensor(self._name)
        for letter in read_letters(self._cluster, box, Selection(), self._clock, newest=_MOST_RECORDS):
            if letter.fact is not None:
                tally = letters[letter.fact.trigger].setdefault(letter.fact.reason, Tally())
                tally.add("{}:{}".format(*letter.place), letter.fact.detail)
        return dict(letters)


def _action(record: Record) -> ActionFact | None:
    """None for a record that is none of ours: the sensor has put it among the dead letters."""
    try:
        return action_fact(record)
    except FormatError:
        return None
