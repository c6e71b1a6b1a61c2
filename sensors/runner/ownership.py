"""May this replica work on that partition? Decided from what is committed and from the state partition.

A state partition begins with an identity record, written in the same transaction as the first commit of its trigger
partition; the other stages leave an origin record with their first commit of each input partition. So:

- a commit and no such record: the state topic was deleted or replaced. Stop: what was spilled there is gone.
- such a record and no commit: the group's offsets are gone (Kafka forgets those of a group that was empty for
  `offsets.retention.minutes`). Stop: to begin anew would lose or repeat actions, and only a person can choose which.
- neither: the first start.
"""

from __future__ import annotations

from eventbus.errors import FatalError, Superseded
from eventbus.formats import VERSION, encode_fact
from eventbus.metadata import Owner
from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import Committed, Output, Record
from eventbus.stateformats import Identity, IdentityKey, Origin, OriginKey, decode_state_key, encode_state_key, identity
from eventbus.topics import Topology
from sensors.plan import SensorPlan


def check_owner(name: SensorName, mine: Owner, found: Owner) -> None:
    """A higher generation takes over, a lower one stops, the same generation must be the same spec."""
    if found.generation > mine.generation:
        raise Superseded(
            f"generation {found.generation} of the sensor {name} has taken over; this is generation {mine.generation}. "
            "Run the newer manifest"
        )
    if found.generation == mine.generation and found.digest != mine.digest:
        raise FatalError(
            f"the sensor {name} has run with another spec under the same generation {mine.generation}. "
            "If this manifest is the newer one, raise `metadata.generation` (or --generation); "
            "if these are two sensors, give one of them another name"
        )


def check_same_sensor(name: SensorName, found: Identity) -> None:
    """Refuse state that belongs to another sensor whose topics happen to have the same names."""
    if (found.namespace, found.bus, found.sensor) != (name.bus.namespace, name.bus.bus, name.sensor):
        raise FatalError(
            f"the topic `{name.topic(Kind.STATE)}` belongs to the sensor {found.sensor} of the bus "
            f"{found.namespace}/{found.bus}, not to {name}: their topics have the same names. "
            "Give one of them another name"
        )


def check_identity(plan: SensorPlan, topology: Topology, found: Identity) -> None:
    """Refuse state of another sensor, of another number of partitions, or of a newer generation."""
    check_same_sensor(plan.name, found)
    if found.trigger_partitions != topology.trigger_partitions:
        raise FatalError(
            f"the topic `{plan.name.topic(Kind.TRIGGER)}` had {found.trigger_partitions} partitions and now has "
            f"{topology.trigger_partitions}: events of one trigger would be in two partitions and never meet. "
            "Drain the sensor, delete its trigger and state topics and their group's offsets, and start it again"
        )
    if found.action_partitions != topology.action_partitions:
        raise FatalError(
            f"the topic `{plan.name.topic(Kind.ACTION)}` had {found.action_partitions} partitions and now has "
            f"{topology.action_partitions}: actions with one key would be in two partitions and lose their order. "
            "Drain the sensor, delete its trigger, action and state topics and the offsets of the groups "
            f"`{plan.name.group(Stage.JOIN)}` and `{plan.name.group(Stage.INVOKE)}`, and start it again"
        )
    check_owner(plan.name, plan.owner, Owner(found.generation, found.digest))


class Contradiction(FatalError):
    """What is committed and what is in the state do not go together."""

    def __init__(self, message: str, partition: int, committed: Committed | None) -> None:
        super().__init__(message)
        self.partition = partition
        self.committed = committed
        """As it was when the partition was opened."""


def offsets_gone(name: SensorName, stage: Stage, partition: int) -> Contradiction:
    group, topic = name.group(stage), name.input_topic(stage)
    return Contradiction(
        f"the group `{group}` has no committed offset for {topic}[{partition}], but the sensor {name} has run before: "
        "its offsets have expired or were deleted, as they are with their topic. To begin anew, and give up what is "
        f"held, delete the topic `{name.topic(Kind.STATE)}` and the offsets of the groups `{name.prefix}-…`",
        partition,
        None,
    )


def state_gone(name: SensorName, partition: int, committed: Committed) -> Contradiction:
    return Contradiction(
        f"the topic `{name.topic(Kind.STATE)}` has no identity in partition {partition}, but the group "
        f"`{name.group(Stage.JOIN)}` has committed: the topic was deleted or replaced, and events that were held in it "
        "are gone. To go on without them, delete the offsets of that group",
        partition,
        committed,
    )


def identity_output(name: SensorName, found: Identity, partition: int) -> Output:
    return Output(name.topic(Kind.STATE), partition, encode_state_key(IdentityKey()), encode_fact(found))


def identity_of(plan: SensorPlan, topology: Topology) -> Identity:
    return Identity(
        version=VERSION,
        namespace=plan.name.bus.namespace,
        bus=plan.name.bus.bus,
        sensor=plan.name.sensor,
        event_partitions=topology.event_partitions,
        trigger_partitions=topology.trigger_partitions,
        action_partitions=topology.action_partitions,
        generation=plan.owner.generation,
        digest=plan.owner.digest,
    )


class Beginnings:
    """Where a stage without state of its own has begun to read the partitions of its input.

    It is asked only for partitions that the stage's group has committed nothing for.
    """

    def __init__(self, name: SensorName, topology: Topology, stage: Stage, generation: int) -> None:
        self._name = name
        self._generation = generation
        self._topology = topology
        self._stage = stage
        self._begun: set[int] = set()
        self._event_partitions: dict[int, int] = {}

    def place(self, partition: int) -> tuple[str, int]:
        """The state partition that knows."""
        return self._name.topic(Kind.STATE), partition % self._topology.trigger_partitions

    def load(self, partition: int, record: Record) -> None:
        """One record of that state partition."""
        key = decode_state_key(record)
        if isinstance(key, IdentityKey):
            found = identity(record)
            check_same_sensor(self._name, found)
            self._event_partitions[partition] = found.event_partitions
        elif key == OriginKey(self._stage, partition):
            self._begun.add(partition)

    def added_later(self, partition: int) -> bool:
        """Whether the event topic did not have this partition when the sensor first ran."""
        return partition >= self._event_partitions.get(partition, partition + 1)

    def begin(self, partition: int, offset: int) -> Output:
        """The note that the stage begins here. Raises when it has begun before, and its offsets are gone."""
        if partition in self._begun:
            raise offsets_gone(self._name, self._stage, partition)
        return self._note(self._stage, partition, offset)

    def go_on(self, partition: int, offset: int) -> Output:
        """The note that this generation of the spec goes on here: an audit judges each by its own manifest."""
        return self._note(f"{self._stage}/{self._generation}", partition, offset)

    def _note(self, stage: str, partition: int, offset: int) -> Output:
        topic, number = self.place(partition)
        note = Origin(version=VERSION, offset=offset, generation=self._generation)
        return Output(topic, number, encode_state_key(OriginKey(stage, partition)), encode_fact(note))

    def forget(self, partition: int) -> None:
        self._begun.discard(partition)
        self._event_partitions.pop(partition, None)
