"""A sensor that has worked a lot: its topics, written by its own match and join, without the log in between."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package has no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from eventbus import Bus
from eventbus.cloudevents import to_kafka
from eventbus.events import Event
from eventbus.formats import VERSION, Invocation, action_fact, encode_fact, header
from eventbus.metadata import InvokeCommit, JoinCommit, encode_invoke, encode_join, encode_match
from eventbus.names import Kind, Stage
from eventbus.ports import Output, Record
from eventbus.topics import ensure_sensor_topics
from sensors.join import JoinPartition
from sensors.match import Matcher
from sensors.sensor import sensor_name
from sensors.spark.workers import Deputy
from sensors.spec.loader import make_manifest
from sensors.spec.models import SensorManifest

PARTITIONS = 4
_BLOCK = 20_000
_REPLICA = "0"
_KEYS = 5000

_NAMES = ("paid", "packed")
_WANTED = {name.encode() for name in _NAMES}
_DEPENDENCIES = [{"name": name, "eventSourceName": "shop", "eventName": name} for name in _NAMES]
_TRIGGERS: dict[str, dict[str, object]] = {
    "ship": {"conditions": "paid && packed"},
    "note": {"conditions": "paid"},
    "bill": {"conditions": "paid && packed", "correlate": {"by": "data.order"}, "within": "1h"},
}
_TRIGGERS_OF = {
    "plain": ("ship", "note"),
    "shared": ("ship", "note"),
    "crowded": ("ship", "note"),
    "keyed": ("note", "bill"),
}
"""`ship` is a single slot, for `note` one event is enough, `bill` has many keys and a window."""
_CONCERNED = {"plain": 1, "shared": 10, "crowded": 100, "keyed": 1}
"""One pair of events in so many concerns the sensor; the others are for somebody else on the same bus."""
SENSORS = tuple(_TRIGGERS_OF)


def _manifest(sensor: str) -> SensorManifest:
    triggers = [
        {"template": {"name": name, **_TRIGGERS[name], "log": {}}, "atLeastOnce": True} for name in _TRIGGERS_OF[sensor]
    ]
    return make_manifest(
        {
            "apiVersion": "eventbus.dev/v1alpha1",
            "kind": "Sensor",
            "metadata": {"name": "orders"},
            "spec": {"dependencies": _DEPENDENCIES, "triggers": triggers},
        }
    )


class Generated:
    """Writes block by block, so that memory does not grow with the amount."""

    def __init__(self, bus: Bus, sensor: str) -> None:
        bus.ensure(PARTITIONS)
        self._bus = bus
        self._concerned = _CONCERNED[sensor]
        manifest = _manifest(sensor)
        self.name = sensor_name(manifest, bus.name)
        self.deputy = Deputy(manifest, bus.name, ensure_sensor_topics(bus.cluster, self.name))
        self._plan = self.deputy.plan
        topology = self.deputy.topology
        self._matcher = Matcher(self._plan, topology, _REPLICA)
        start = JoinCommit(self._plan.owner, 0, 0, {})
        self._joins = [JoinPartition(self._plan, topology, each, start, _REPLICA) for each in range(PARTITIONS)]
        self._ends: dict[tuple[str, int], int] = {}
        self._number = 0
        self.records = 0
        self.core_seconds = 0.0
        """Of a processor: what match and join have taken for the events that concern the sensor, and nothing else."""
        self.fired: Counter[str] = Counter()
        self._producer = Producer(
            {
                "bootstrap.servers": bus.bootstrap_servers,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 500_000,
            }
        )
        self._keep_timestamps()

    def write(self, records: int) -> None:
        """Until there are at least so many records in all topics together."""
        while self.records < records:
            self._block()
        self._producer.flush()
        self._commit()

    def _keep_timestamps(self) -> None:
        """Those of events have to be known before the brokers have them. It takes a moment until they obey."""
        topic = self._bus.name.event_topic
        entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
        admin = AdminClient({"bootstrap.servers": self._bus.bootstrap_servers})
        [done] = admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
        ).values()
        done.result()
        kinds: list[int] = []
        while kinds != [TIMESTAMP_CREATE_TIME] * PARTITIONS:
            kinds.clear()
            for partition in range(PARTITIONS):
                headers, value = to_kafka(Event.new("bench", "unwanted", {}))
                self._producer.produce(
                    topic,
                    value,
                    partition=partition,
                    headers=list(headers),
                    on_delivery=lambda _error, message: kinds.append(message.timestamp()[0]),
                )
                self._ends[topic, partition] = self._ends.get((topic, partition), 0) + 1
                self.records += 1
            self._producer.flush()

    def _block(self) -> None:
        now = time.time_ns() // 1_000_000
        events = [self._placed(output, now) for output in self._events()]
        wanted = [event for event in events if header(event.headers, "ce_subject") in _WANTED]
        began = time.thread_time()
        matched = [output for event in wanted for output in self._matcher.outputs(event)]
        self.core_seconds += time.thread_time() - began
        triggers = [self._placed(each, now) for each in matched if each.topic == self.name.topic(Kind.TRIGGER)]
        actions = [each for each in matched if each.topic == self.name.topic(Kind.ACTION)]
        self._commits = {}
        for partition, join in enumerate(self._joins):
            arrived = [each for each in triggers if each.partition == partition]
            began = time.thread_time()
            step = join.step(arrived)
            self.core_seconds += time.thread_time() - began
            if step is not None:
                actions += [each for each in step.outputs if each.topic == self.name.topic(Kind.ACTION)]
                self._commits[partition] = step.commit
        for action in actions:
            written = self._placed(action, now)
            self.fired[action_fact(written).trigger] += 1
            self._placed(_note(self.name.topic(Kind.INVOCATION), written, now), now)

    def _events(self) -> Iterator[Output]:
        for number in range(self._number, self._number + _BLOCK):
            pair, half = divmod(number, 2)
            order = f"order-{pair % _KEYS}-{pair // _KEYS}"
            name = (("viewed", "left") if pair % self._concerned else _NAMES)[half]
            data = {"order": order, "customer": f"c{number % 977}", "lines": [1, 2, 3], "amount": number / 100}
            headers, value = to_kafka(Event.new("shop", name, data, id=f"{order}-{name}", partitionkey=order))
            partition = pair // self._concerned % PARTITIONS
            yield Output(self._bus.name.event_topic, partition, order.encode(), value, headers)
        self._number += _BLOCK

    def _placed(self, output: Output, now: int) -> Record:
        """Write it, and know where it will be: nobody else writes there."""
        place = output.topic, output.partition
        offset = self._ends.get(place, 0)
        self._ends[place] = offset + 1
        while True:
            try:
                self._producer.produce(
                    output.topic,
                    output.value,
                    output.key,
                    output.partition,
                    headers=list(output.headers),
                    timestamp=now,
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self.records += 1
        return Record(output.topic, output.partition, offset, now, output.key, output.value, output.headers)

    def _commit(self) -> None:
        """As the stages would have done."""
        owner = self._plan.owner
        for stage in Stage:
            topic = self.name.input_topic(stage)
            places = []
            for partition in range(PARTITIONS):
                end = self._ends.get((topic, partition), 0)
                if stage is Stage.MATCH:
                    places.append(TopicPartition(topic, partition, end, encode_match(owner)))
                elif stage is Stage.INVOKE:
                    metadata = encode_invoke(InvokeCommit(owner, end, ()))
                    places.append(TopicPartition(topic, partition, end, metadata))
                elif commit := self._commits.get(partition):
                    places.append(TopicPartition(topic, partition, commit.offset, encode_join(commit)))
            _commit(self._bus.bootstrap_servers, self.name.group(stage), places)


def _commit(servers: str, group: str, places: Iterable[TopicPartition]) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=list(places), asynchronous=False)
    finally:
        consumer.close()


def _note(topic: str, action: Record, now: int) -> Output:
    fact = action_fact(action)
    note = Invocation(
        version=VERSION,
        action=fact.id,
        sensor="bench",
        trigger=fact.trigger,
        attempt=1,
        outcome="succeeded",
        mode="atLeastOnce",
        partition=action.partition,
        offset=action.offset,
        replica=_REPLICA,
        started=now + 5,
        ended=now + 9,
        status="204",
    )
    return Output(topic, int(fact.id[:8], 16) % PARTITIONS, fact.id.encode(), encode_fact(note))
