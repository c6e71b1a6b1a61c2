"""The join stage: hold the latest event of each dependency until the condition is true, then write one action.

Theory of operation
-------------------
`JoinPartition` is one partition of the trigger topic. It is fed records in the order of the log and asked, per batch,
for one transaction: the actions, the state records and the commit become durable together or not at all.

*Where held events live.* In the log, as long as they are young: the commit's metadata holds a low-water mark per
trigger, the oldest offset that the trigger still holds. After a restart the log is read again from the least mark;
a record below the position is *replayed*: it is held again if it is at or above its trigger's mark, and fires
nothing. From the position on records are *evaluated*. What has been held for longer than the horizon, or would make
the metadata too large, is *spilled*: written to the compacted state topic, whereupon the mark moves on. A firing
writes tombstones for what was spilled. So a restart reads a bounded piece of the log, however long something is held.

*Why replay cannot go wrong.* A firing forgets everything its trigger holds, so all that is at or above a mark and
below the position was held after the last firing, and only "the latest event of a dependency wins" applies to it.
An event in the log is newer than a spilled one of the same dependency; the state is loaded first, the log second.

*When the spec changes* (the trigger's join shape differs from the one in the mark or record), what still fits is held
under the new condition and evaluated at the next arrival; the rest is parked in the dead-letter topic. What is held
and was written for another shape is spilled at once: whoever restores from a mark knows the mark's shape only, and
could not tell what of a record of another shape had fitted.

*Stateful triggers* (correlation keys, windows, counts and the like: `sensors.keyed`) have no marks and are never
replayed: what they hold and remember lives in the state topic alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter

import msgspec

from eventbus.errors import FormatError, NewerFormatError
from eventbus.formats import FLUSH_HEADER, STATE_HEADER, VERSION, OwnDocument, TriggerFact, encode_fact, flush, header
from eventbus.metadata import JoinCommit, Mark, marks_that_fit
from eventbus.names import Kind, Stage
from eventbus.ports import Output, Record
from eventbus.stateformats import HeldKey, StateFact, encode_state_key, state_fact
from eventbus.topics import Topology
from sensors.actionrecords import ActionWriter
from sensors.deadletters import INVALID_RECORD, SPEC_CHANGED, DeadLetters
from sensors.held import Held, Slot, by_dependency, identity_in, read_event
from sensors.heldletters import HeldLetters
from sensors.keyed import Gone, Memory
from sensors.keyedslots import KeyedSlots, Stray
from sensors.plan import SensorPlan, TriggerPlan, keying_of, trigger_digest
from sensors.rules import EXPIRED, RESET

HORIZON_RECORDS = 10_000
HORIZON_MS = 3_600_000


class Unused(msgspec.Struct, frozen=True):
    """An event that a trigger has let go, and why."""

    trigger: str
    key: str
    gone: Gone


class JoinStep(msgspec.Struct, frozen=True):
    """One transaction of the join stage, for one partition."""

    outputs: list[Output]
    commit: JoinCommit
    unused: list[Unused]
    """What was let go without being used."""


class JoinPartition:
    """The held events of one partition of the trigger topic."""

    def __init__(
        self,
        plan: SensorPlan,
        topology: Topology,
        partition: int,
        commit: JoinCommit,
        replica: str,
        *,
        horizon_records: int = HORIZON_RECORDS,
        horizon_ms: int = HORIZON_MS,
    ) -> None:
        self._plan = plan
        self._partition = partition
        self._topology = topology
        self._horizon_records = horizon_records
        self._horizon_ms = horizon_ms
        self._restored_marks = commit.marks
        self._position = commit.position
        self._clock = commit.clock
        self._slots: dict[str, Slot] = {}
        self._keyed = KeyedSlots(plan, partition)
        self._unused: list[Unused] = []
        self._touched: set[str] = set()
        self._foreign: set[str] = set()
        """Triggers that hold events which were written for another shape: a mark speaks of one shape only."""
        self._in_log: dict[str, int] = {}
        self._to_write: list[Output] = []
        """What the restore leaves to do, once the replay is over: who is named in a commit has seen to all of it."""
        self._state_topic = plan.name.topic(Kind.STATE)
        self._action = ActionWriter(plan, topology, replica)
        self._dead_letters = DeadLetters.of_stage(plan.name, Stage.JOIN, topology, replica)
        self._letters = HeldLetters(plan.name, self._dead_letters, partition)

    def held(self, trigger: str) -> Iterator[tuple[str, str, Held]]:
        """What a trigger holds right now: correlation key, dependency and event. Looks through copies only."""
        slot = self._slots.get(trigger)
        for dependency, event in sorted(slot.held.copy().items()) if slot is not None else ():
            yield "", dependency, event
        yield from self._keyed.held(trigger)

    def slot(self, trigger: str, key: str) -> dict[str, list[Held]]:
        """What one trigger holds right now for one correlation key, by dependency."""
        keyed = self._keyed.slots.get(trigger, {}).get(key)
        if keyed is not None:
            return {name: [kept.event for kept in events] for name, events in keyed.held.items()}
        slot = self._slots.get(trigger)
        return {} if slot is None else {name: [event] for name, event in slot.held.items()}

    @property
    def position(self) -> int:
        """The next offset to be evaluated."""
        return self._position

    # --- restore ----------------------------------------------------------------------------------------------------

    def load(self, key: Memory, record: Record) -> None:
        """Take over one record of the state topic; they come in the order of that log."""
        stateful = self._keyed.load(key, record)
        if not isinstance(key, HeldKey):
            return
        slot = self._slots.setdefault(key.trigger, Slot())
        if record.value is None or stateful:
            slot.held.pop(key.dependency, None)
            slot.stored.discard(key.dependency)
            return
        fact = state_fact(record)
        slot.held[key.dependency] = Held(record.value, identity_in(record), fact.source, fact.trace, None)
        slot.stored.add(key.dependency)

    def claim(self, identity: Output) -> None:
        """The state belongs to another generation of the spec, or to nobody yet."""
        self._to_write.append(identity)

    def loaded(self) -> None:
        """The state topic is read. What no longer fits the spec leaves it, once it is known what is really held."""
        for stray in self._keyed.loaded():
            self._take_in(stray)
        if not self._restored_marks:  # else the log may hold what supersedes it
            self._park_all_misfits()
            self._hand_over()

    def _replay(self, record: Record) -> None:
        """Hold again what was held before the restart. Nothing fires: whatever could has fired already."""
        try:
            fact, event = read_event(record)
        except NewerFormatError:
            raise
        except FormatError:
            return  # it was dead-lettered when it was evaluated
        mark = self._restored_marks.get(trigger_digest(fact.trigger))
        if mark is not None and record.offset >= mark.offset and fact.shape == mark.shape:
            self._hold(fact.trigger, fact.dependencies, event, fact.own)

    def _replayed(self) -> None:
        """The position is reached: of what is held now, the misfits were held under another spec."""
        self._park_all_misfits()
        for name, trigger in self._plan.triggers.items():
            mark = self._restored_marks.get(trigger.digest)
            if mark is not None and mark.shape != trigger.shape:
                self._foreign.add(name)
        self._restored_marks = {}
        self._hand_over()

    def _park_all_misfits(self) -> None:
        for trigger in list(self._slots):
            self._park_misfits(trigger)

    def _park_misfits(self, name: str) -> None:
        trigger = self._plan.triggers.get(name)
        slot = self._slots[name]
        # A trigger for which one event is enough gets nothing to join any more: whatever it holds would wait for ever.
        fits = trigger is not None and not trigger.direct and not trigger.keying
        names = trigger.condition.names if trigger is not None and fits else frozenset()
        for dependency in [dependency for dependency in slot.held if dependency not in names]:
            event = slot.held.pop(dependency)
            self._to_write.append(self._letters.parked(HeldKey(name, "", dependency), event, ""))
        for dependency in [dependency for dependency in slot.stored if dependency not in names]:
            slot.stored.discard(dependency)
            self._to_write.append(self._state_output(name, dependency, None))
        self._touched.add(name)

    def _hand_over(self) -> None:
        """What a trigger holds that has become a stateful one."""
        stateful = [name for name, trigger in self._plan.triggers.items() if trigger.rules is not None]
        for name in sorted(self._slots.keys() & stateful):
            slot = self._slots.pop(name)
            for dependency, event in slot.held.items():
                self._keyed.adopt(name, dependency, event, self._clock, stored=dependency in slot.stored)
            self._in_log.pop(name, None)
            self._touched.discard(name)
            self._foreign.discard(name)

    def _take_in(self, stray: Stray) -> None:
        """What a trigger held that was a stateful one: if it is a plain one now, its newest events still fit."""
        key, event = stray.key, stray.kept.event
        trigger = self._plan.triggers.get(key.trigger)
        plain = trigger is not None and not trigger.direct and trigger.rules is None and not keying_of(stray.shape)
        if trigger is None or not plain or key.dependency not in trigger.condition.names:
            self._to_write.append(self._letters.parked(key, event, stray.shape))
            return
        slot = self._slots.setdefault(key.trigger, Slot())
        rival = slot.held.get(key.dependency)
        if rival is None or event.age > rival.age:
            slot.held[key.dependency] = event
        self._touched.add(key.trigger)
        self._foreign.add(key.trigger)

    # --- evaluate ---------------------------------------------------------------------------------------------------

    def step(self, records: Sequence[Record]) -> JoinStep | None:
        """Apply a batch, in the order of the log; None where there is nothing to commit.

        An empty batch commits what the restore left to do.
        """
        outputs: list[Output] = []
        before = self._position
        for record in records:
            if record.offset < before:
                self._replay(record)
                if record.offset == before - 1:
                    self._replayed()
            else:
                self._evaluate(record, outputs)
                self._position = record.offset + 1
        if self._restored_marks:
            return None  # the replay is not over: the last commit still holds
        self._settle()
        outputs += self._to_write
        self._to_write = []
        for trigger, key, gone in self._keyed.sweep(self._clock):
            self._let_go(self._plan.triggers[trigger], key, [gone], outputs)
        outputs += self._keyed.outputs()
        outputs += self._spill()  # last: what a stateful trigger has given up may be a plain one's now
        if not outputs and self._position == before:
            return None
        unused, self._unused = self._unused, []
        commit = JoinCommit(self._plan.owner, self._position, self._clock, self._marks())
        return JoinStep(outputs, commit, unused)

    def _evaluate(self, record: Record, outputs: list[Output]) -> None:
        try:
            fact, event = read_event(record)
        except NewerFormatError:
            raise
        except FormatError as error:
            if header(record.headers, FLUSH_HEADER) is None:
                outputs.append(self._dead_letters.of(record, INVALID_RECORD, str(error)))
            else:
                self._flush(record, outputs)
            return
        self._clock = max(self._clock, event.source.timestamp)
        trigger = self._plan.triggers.get(fact.trigger)
        names = fact.dependencies if trigger and trigger.shape == fact.shape else _fitting(fact, trigger)
        if trigger is None or not names:
            detail = f"the sensor has no trigger `{fact.trigger}` with a dependency {', '.join(fact.dependencies)}"
            if trigger is not None and trigger.keying != keying_of(fact.shape):
                detail = f"the trigger `{fact.trigger}` correlates its events in another way now"
            outputs.append(self._dead_letters.of(record, SPEC_CHANGED, detail, trigger=fact.trigger))
        elif trigger.rules is not None:
            self._arrive(trigger, fact, by_dependency(event, names, fact.own), event, outputs)
        else:
            if trigger.shape != fact.shape:
                self._foreign.add(trigger.name)
            slot = self._hold(trigger.name, names, event, fact.own)
            if trigger.condition.holds(slot.held):
                outputs += self._fire(trigger, slot, event)

    def _arrive(
        self, trigger: TriggerPlan, fact: TriggerFact, events: dict[str, Held], completing: Held, outputs: list[Output]
    ) -> None:
        arrival = self._keyed.arrive(trigger, fact.key, events, fact.unique, self._clock)
        self._let_go(trigger, fact.key, arrival.gone, outputs)
        if arrival.fired is not None:
            outputs.append(self._action.joined(trigger, fact.key, arrival.fired, completing, self._partition))

    def _flush(self, record: Record, outputs: list[Output]) -> None:
        """What an operator wants. It stands in the log like an event, so that every replica and replay obeys it."""
        try:
            wanted = flush(record)
        except NewerFormatError:
            raise
        except FormatError as error:
            outputs.append(self._dead_letters.of(record, INVALID_RECORD, str(error)))
            return
        trigger = self._plan.triggers.get(wanted.trigger)
        if trigger is None:
            return
        used: list[tuple[str, Held]] = []
        if trigger.rules is not None:
            arrival = self._keyed.flush(trigger, wanted.key, self._clock, fire=wanted.fire)
            self._let_go(trigger, wanted.key, arrival.gone, outputs)
            used = arrival.fired or []
        elif not wanted.key and trigger.name in self._slots:
            slot = self._slots[trigger.name]
            used = sorted(slot.held.items())
            outputs += self._emptied(trigger, slot)
        if used and wanted.fire:
            # Where they arrived is not known any more of what has moved to the state topic.
            newest = max(
                (event for _, event in used), key=attrgetter("source.timestamp", "source.partition", "source.offset")
            )
            completing = msgspec.structs.replace(newest, offset=record.offset)
            outputs.append(self._action.joined(trigger, wanted.key, used, completing, self._partition))
        elif used:
            outputs += [self._letters.flushed(trigger, wanted.key, name, event) for name, event in used]

    def _let_go(self, trigger: TriggerPlan, key: str, gone: Sequence[Gone], outputs: list[Output]) -> None:
        self._unused += [Unused(trigger.name, key, each) for each in gone]
        if trigger.rules is not None and trigger.rules.bury_expired:
            buried = [each for each in gone if each.reason in (EXPIRED, RESET)]
            outputs += [self._letters.expired(trigger, key, each) for each in buried]

    def _hold(self, trigger: str, dependencies: Sequence[str], event: Held, own: Sequence[OwnDocument]) -> Slot:
        """The latest event of a dependency wins."""
        slot = self._slots.get(trigger)
        if slot is None:
            slot = self._slots[trigger] = Slot()
        for name in dependencies:
            slot.held[name] = event
        if own:
            slot.held.update(by_dependency(event, dependencies, own))
        self._touched.add(trigger)
        return slot

    def _fire(self, trigger: TriggerPlan, slot: Slot, completing: Held) -> list[Output]:
        """One action with the events of all dependencies; then nothing is held any more."""
        action = self._action.joined(trigger, "", sorted(slot.held.items()), completing, self._partition)
        return [action, *self._emptied(trigger, slot)]

    def _emptied(self, trigger: TriggerPlan, slot: Slot) -> list[Output]:
        if slot.held:
            self._touched.add(trigger.name)
        tombstones = [self._state_output(trigger.name, name, None) for name in sorted(slot.stored)]
        slot.held.clear()
        slot.stored.clear()
        return tombstones

    # --- marks and spill --------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Note what the slots touched by this batch still need of the log, and forget those that hold nothing."""
        for trigger in sorted(self._touched):  # the same bytes whoever computes them
            slot = self._slots[trigger]
            oldest = slot.oldest()
            if oldest is None:
                self._in_log.pop(trigger, None)
            else:
                self._in_log[trigger] = oldest
            if not slot.held and not slot.stored:
                del self._slots[trigger]
        self._touched.clear()

    def _marks(self) -> dict[str, Mark]:
        triggers = self._plan.triggers
        return {triggers[name].digest: Mark(triggers[name].shape, oldest) for name, oldest in self._in_log.items()}

    def _spill(self) -> list[Output]:
        """Move to the state topic what has been held for too long, and what marks have no room or no words for."""
        foreign, self._foreign = self._foreign, set()
        if not self._in_log:
            return []
        newest_first = sorted(self._in_log.items(), key=itemgetter(1), reverse=True)
        fit = marks_that_fit(self._position - newest_first[-1][1])
        outputs: list[Output] = []
        for rank, (name, oldest) in enumerate(newest_first):
            slot = self._slots[name]
            too_old = oldest < self._position - self._horizon_records or self._aged(slot)
            if rank >= fit or too_old or name in foreign:
                outputs += self._spill_slot(name, slot)
        return outputs

    def _aged(self, slot: Slot) -> bool:
        limit = self._clock - self._horizon_ms
        return any(event.offset is not None and event.source.timestamp < limit for event in slot.held.values())

    def _spill_slot(self, name: str, slot: Slot) -> list[Output]:
        outputs = []
        for dependency, event in slot.held.items():
            if event.offset is not None:
                outputs.append(self._state_output(name, dependency, event))
                slot.held[dependency] = msgspec.structs.replace(event, offset=None)
                slot.stored.add(dependency)
        del self._in_log[name]
        return outputs

    # --- records ----------------------------------------------------------------------------------------------------

    def _state_output(self, trigger: str, dependency: str, event: Held | None) -> Output:
        key = encode_state_key(HeldKey(trigger, "", dependency))
        if event is None:
            return Output(self._state_topic, self._partition, key, None)
        fact = StateFact(
            version=VERSION, shape=self._plan.triggers[trigger].shape, source=event.source, trace=event.trace
        )
        return Output(self._state_topic, self._partition, key, event.document, [(STATE_HEADER, encode_fact(fact))])


def _fitting(fact: TriggerFact, trigger: TriggerPlan | None) -> tuple[str, ...]:
    if trigger is None or trigger.keying != keying_of(fact.shape):
        return ()
    return tuple(name for name in fact.dependencies if name in trigger.condition.names)
