"""A bus, the sensors that run on it, and what their actions were called with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Any, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from eventbus import Bus, Event
from eventbus.clock import Deadline, SystemClock
from eventbus.errors import EventBusError
from eventbus.formats import DeadLetter, Invocation, dead_letter, invocation
from eventbus.memory import MemoryCluster
from eventbus.metadata import decode_join
from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import Output, Record
from eventbus.topics import Topology, ensure_sensor_topics
from sensors import ActionCall, Replica, RetryPolicy, Sensor, Settings
from sensors.evidence import TriggerState
from sensors.inspection import held_state, read_range, stable_commits

DEPENDENCIES = {name: ("shop", name) for name in "abcd"}
Call = tuple[str, dict[str, str]]


class World:
    """Closes everything it has made, whatever happens."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.calls: list[Call] = []
        self._noted = threading.Condition()
        self._stack = ExitStack()
        self._slots = 0
        bus.ensure(3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- sensors ----------------------------------------------------------------------------------------------------

    def sensor(
        self,
        *,
        generation: int = 1,
        start_from: str = "latest",
        at_least_once: bool = True,
        retry: RetryPolicy | None = None,
        function: Callable[[ActionCall], Any] | None = None,
        **conditions: str,
    ) -> Sensor:
        """A sensor called `s` with these triggers, which note their calls."""
        sensor = Sensor("s", DEPENDENCIES, generation=generation, start_from=start_from)
        for name, text in conditions.items():
            declare = sensor.trigger(name.replace("_", "-"), text, at_least_once=at_least_once, retry=retry)
            declare(function or self.note)
        return sensor

    def note(self, call: ActionCall) -> None:
        with self._noted:
            self.calls.append((call.trigger, {name: event.id for name, event in call.events.items()}))
            self._noted.notify_all()

    def wait_for_calls(self, count: int) -> None:
        """For several replicas: while partitions change hands, none of them knows that there is more to come."""
        with self._noted:
            self._noted.wait_for(lambda: len(self.calls) >= count, 30)

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        deadline = Deadline(SystemClock(), 30)
        while not condition():
            assert not deadline.over(), "waited in vain"

    def start(self, sensor: Sensor, *, settings: Settings | None = None, slot: str | None = None) -> Replica:
        """A replica that is ready."""
        self._slots += 1
        replica = sensor.start(self.bus, slot=slot or str(self._slots), settings=settings)
        self._stack.callback(_stop, replica)
        replica.start()
        replica.wait_ready()
        return replica

    def wait_for_generation(self, generation: int) -> None:
        """Wait until a replica of this generation has got a partition of the trigger topic."""
        group, topic = self.name.group(Stage.JOIN), self.name.topic(Kind.TRIGGER)
        deadline = Deadline(SystemClock(), 30)
        while not any(
            commit and decode_join(commit.offset, commit.metadata).owner.generation == generation
            for commit in stable_commits(self.bus.cluster, group, topic, SystemClock()).values()
        ):
            assert not deadline.over(), f"generation {generation} has not taken over"

    def failure(self, sensor: Sensor) -> EventBusError:
        """What a replica that must not run ends with."""
        self._slots += 1
        replica = sensor.start(self.bus, slot=str(self._slots))
        self._stack.callback(_stop, replica)
        replica.start()
        assert replica.wait(30)
        _stop(replica)  # which also waits until it has left its groups
        assert replica.failure is not None
        return replica.failure

    @property
    def name(self) -> SensorName:
        return SensorName(self.bus.name, "s")

    # --- events and records -----------------------------------------------------------------------------------------

    def publish(self, names: str, prefix: str = "e", key: str = "k") -> None:
        """One event per letter, in order, with the ids e0, e1, …"""
        self.bus.publish(
            *(
                Event.new("shop", name, {"n": number}, id=f"{prefix}{number}", partitionkey=key)
                for number, name in enumerate(names)
            )
        )

    def send(self, output: Output) -> None:
        """Write a record that the bus itself would not write."""
        publisher = self.bus.cluster.publisher()
        publisher.send(output, lambda *_: None)
        assert publisher.flush(30) == 0
        publisher.close()

    def records(self, topic: str) -> list[Record]:
        reader = self.bus.cluster.reader()
        try:
            info = self.bus.cluster.describe([topic])[topic]
            assert info is not None
            return [
                record
                for partition in range(info.partitions)
                for record in read_range(reader, topic, partition, start=0, end=None, clock=SystemClock())
            ]
        finally:
            reader.close()

    def dead_letters(self) -> list[DeadLetter]:
        return [dead_letter(record) for record in self.records(self.name.topic(Kind.DLQ))]

    def invocations(self) -> list[Invocation]:
        return [invocation(record) for record in self.records(self.name.topic(Kind.INVOCATION))]

    def topology(self) -> Topology:
        return ensure_sensor_topics(self.bus.cluster, self.name)

    def state(self, sensor: Sensor) -> list[TriggerState]:
        """What `eventbus state` would show."""
        plan = sensor.blueprint(self.bus.name).plan
        return held_state(self.bus.cluster, plan, self.topology(), SystemClock())

    def add_partition(self, topic: str) -> int:
        """Returns its number."""
        if isinstance(self.bus.cluster, MemoryCluster):
            self.bus.cluster.add_partitions(topic, 4)
            return 3
        admin = AdminClient({"bootstrap.servers": self.bus.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result()
        return 3

    # --- disasters --------------------------------------------------------------------------------------------------

    def forget_offsets(self, stages: Iterable[Stage]) -> None:
        """What Kafka does with the offsets of a group that was empty for long."""
        for stage in stages:
            group = self.name.group(stage)
            if isinstance(self.bus.cluster, MemoryCluster):
                self.bus.cluster._broker._groups.pop(group)
            else:
                admin = AdminClient({"bootstrap.servers": self.bus.bootstrap_servers})
                admin.delete_consumer_groups([group])[group].result()

    def forget_topic(self, kind: Kind) -> None:
        self.bus.cluster.delete([self.name.topic(kind)])


def _stop(replica: Replica) -> None:
    with suppress(EventBusError):
        replica.stop()
