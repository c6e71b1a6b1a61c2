"""Dead letters of events that a trigger held: records of the trigger topic, so that they can be driven back there."""

from __future__ import annotations

import msgspec

from eventbus.formats import TRIGGER_HEADER, VERSION, TriggerFact, encode_fact
from eventbus.hashing import slot_key
from eventbus.names import Kind, SensorName
from eventbus.ports import Output, Record
from eventbus.stateformats import HeldKey
from sensors.deadletters import EXPIRED_EVENT, FLUSHED, SPEC_CHANGED, DeadLetters
from sensors.held import Held
from sensors.keyed import Gone
from sensors.plan import TriggerPlan


class HeldLetters(msgspec.Struct, frozen=True):
    """Makes them, for one partition of the trigger topic."""

    name: SensorName
    letters: DeadLetters
    partition: int

    def parked(self, key: HeldKey, event: Held, shape: str) -> Output:
        """The spec has no place for it any more."""
        held = f"held for the dependency `{key.dependency}` of the trigger `{key.trigger}`"
        detail = f"{held}, which the sensor no longer has, or which correlates its events in another way now"
        return self.letters.of(self._record(key, event, shape), SPEC_CHANGED, detail, trigger=key.trigger)

    def expired(self, trigger: TriggerPlan, key: str, gone: Gone) -> Output:
        """It has waited for too long."""
        record = self._record(HeldKey(trigger.name, key, gone.dependency), gone.event, trigger.shape)
        detail = f"{gone.reason} while the trigger `{trigger.name}` held it for the dependency `{gone.dependency}`"
        return self.letters.of(record, EXPIRED_EVENT, detail, trigger=trigger.name)

    def flushed(self, trigger: TriggerPlan, key: str, dependency: str, event: Held) -> Output:
        """An operator has dropped it."""
        record = self._record(HeldKey(trigger.name, key, dependency), event, trigger.shape)
        detail = f"the trigger `{trigger.name}` held it for the dependency `{dependency}` when it was flushed"
        return self.letters.of(record, FLUSHED, detail, trigger=trigger.name)

    def _record(self, key: HeldKey, event: Held, shape: str) -> Record:
        fact = TriggerFact(
            version=VERSION,
            trigger=key.trigger,
            dependencies=(key.dependency,),
            source=event.source,
            shape=shape,
            trace=event.trace,
            key=key.key,
        )
        return Record(
            topic=self.name.topic(Kind.TRIGGER),
            partition=self.partition,
            offset=-1 if event.offset is None else event.offset,
            timestamp=event.source.timestamp,
            key=slot_key(key.trigger, key.key.encode()),
            value=event.document,
            headers=[(TRIGGER_HEADER, encode_fact(fact))],
        )
