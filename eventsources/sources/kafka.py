"""Events from a topic of another Kafka: at least once, because an offset is committed after its event is delivered.

With a `consumerGroup` all replicas read, and the group shares the partitions among them; what a replica has delivered
and not committed is delivered again by whoever gets its partitions, with the same ids. Without one it is a single
`partition` that is read, by the replica that leads; its offset is written together with the events, so that none of
them is told twice.

As with argo-events, the body is in base64; with `jsonBody` it is the JSON itself, or with a `schemaRegistry` what was
Avro. The body of a tombstone is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any, Literal, Protocol

import msgspec
from pydantic import AfterValidator, Field, StrictInt

from eventbus.errors import EventBusError
from eventbus.kafka.cluster import KafkaCluster
from eventbus.kafka.connection import Connection
from eventbus.moments import LAST, exactly
from eventbus.ports import Record
from eventsources.base import Context, SourceError, SourceSpec, Stop, Told, Unusable
from eventsources.sources.kafka_feeds import GroupFeed, PartitionFeed
from eventsources.sources.messages import NOT_JSON, as_body, as_text
from sensors.actions.avro import AvroDecoder, RegistryAddress, lacking_avro
from sensors.actions.base import ActionError
from sensors.actions.kafka import TopicName
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.eventbus import KafkaAddress, setting_flaws
from sensors.spec.fields import Bool, CountFromOne, StringMap, Text
from sensors.spec.policy import Backoff

_BATCH = 250


def runs_once(spec: Any) -> bool | None:
    """A single partition has one reader. A group has any number, and is content with one."""
    return True if get(spec, "consumerGroup") is None else None


def _partition(text: str) -> str:
    if not (text.isascii() and text.isdigit()):
        raise ValueError('must be the number of a partition, in quotes: `"0"`')
    return text


class ConsumerGroup(SpecModel):
    """Who shares the partitions."""

    groupName: Annotated[Text, Field(min_length=1)]
    oldest: Bool = False
    """Where a group begins that has committed nothing: with the first record, or with what comes after it."""
    rebalanceStrategy: Literal["range", "roundrobin", "sticky"] | None = None
    """argo-events' ways to share; here a replica that comes or goes moves as few partitions as possible."""


class SourceRegistry(RegistryAddress):
    """Values are Avro, with schemas from a registry. Needs `kafka-eventbus[avro]`."""

    schemaId: CountFromOne | None = None
    """argo-events has it here, too; every value says itself which schema it has."""


class KafkaSourceSpec(SourceSpec, KafkaAddress):
    """Records of a topic."""

    topic: TopicName
    consumerGroup: ConsumerGroup | None = None
    partition: Annotated[Text, AfterValidator(_partition)] | None = None
    """The one partition to read, where there is no `consumerGroup`; it begins with what comes after it."""
    jsonBody: Bool = False
    """Values are JSON, or can be made JSON of with the help of the `schemaRegistry`."""
    schemaRegistry: SourceRegistry | None = None
    limitEventsPerSecond: Annotated[StrictInt, Field(ge=0)] = 0
    """What one replica reads at the most; 0 is as fast as it can."""
    config: StringMap | Text = Field(default={})
    """Settings of the client, by librdkafka's names. argo-events' text is for another client and does nothing."""
    version: Text | None = None
    connectionBackoff: Backoff | None = None
    """argo-events' pauses between attempts to connect; here they are the same for all sources, and it is not used."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from lacking_avro(data)
        yield from setting_flaws("config", get(data, "config"), of_consumer=True)
        if isinstance(data, Mapping) and data.get("consumerGroup") is None and data.get("partition") is None:
            yield Flaw((), "a `kafka` source needs a `consumerGroup`, or the number of a `partition`")

    def advice(self) -> Iterator[Flaw]:
        if isinstance(self.config, str):
            yield Flaw(("config",), "`config` does nothing: it is for Sarama; write a map of librdkafka's settings")
        if self.version is not None:
            yield Flaw(("version",), "`version` does nothing: the client asks the brokers")
        if self.schemaRegistry is not None and not self.jsonBody:
            yield Flaw(("schemaRegistry",), "`schemaRegistry` does nothing without `jsonBody: true`")
        if self.consumerGroup is None:
            return
        if self.partition is not None:
            yield Flaw(("partition",), "`partition` does nothing: the `consumerGroup` reads all of them")
        if self.consumerGroup.rebalanceStrategy is not None:
            message = "`rebalanceStrategy` does nothing: as few partitions as possible are moved"
            yield Flaw(("consumerGroup", "rebalanceStrategy"), message)

    def connection(self) -> Connection:
        """Raises `ConfigError` when a secret is not there."""
        self.security()
        return Connection(
            self.url, {} if isinstance(self.config, str) else self.config, secrets=self.security, tokens=self.tokens()
        )


class Feed(Protocol):
    """Where records come from."""

    def read(self, most: int) -> Sequence[Record]:
        """What is there, after a while at most."""

    def settle(self, records: Sequence[Record], told: Sequence[Told]) -> None:
        """Deliver what was made of them; then they are done with."""

    def close(self) -> None: ...


class KafkaSource:
    """Reads, delivers, commits."""

    def __init__(self, spec: KafkaSourceSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        spec = self._spec
        limit = spec.limitEventsPerSecond
        try:
            with (
                closing(KafkaCluster(spec.connection())) as cluster,
                closing(_Translation(spec, context)) as translation,
                closing(self._feed(cluster, context)) as feed,
            ):
                while not stop.is_set():
                    records = feed.read(min(_BATCH, limit) if limit else _BATCH)
                    feed.settle(records, [translation.told(record) for record in records])
                    if limit:
                        stop.wait(len(records) / limit)
        except (EventBusError, ActionError) as error:
            raise SourceError(str(error)) from None

    def _feed(self, cluster: KafkaCluster, context: Context) -> Feed:
        spec = self._spec
        if spec.consumerGroup is not None:
            group = spec.consumerGroup
            return GroupFeed(cluster, context, spec.topic, group.groupName, oldest=group.oldest)
        return PartitionFeed(cluster, context, spec.topic, int(spec.partition or 0))


class _Translation:
    """Makes events of records."""

    def __init__(self, spec: KafkaSourceSpec, context: Context) -> None:
        self._spec = spec
        self._identity = context.identity
        self._avro = AvroDecoder(spec.schemaRegistry) if spec.jsonBody and spec.schemaRegistry is not None else None

    def close(self) -> None:
        if self._avro is not None:
            self._avro.close()

    def told(self, record: Record) -> Told:
        """Raises `ActionError` when the schema registry cannot tell."""
        id = f"{record.topic}-{record.partition}-{record.offset}"
        try:
            body = None if record.value is None else self._body(record.value)
        except ValueError as error:
            return Unusable(id, str(error), record.value or b"")
        time = exactly(record.timestamp) if 0 <= record.timestamp <= LAST else None
        data = {
            "topic": record.topic,
            "partition": record.partition,
            "key": None if record.key is None else as_text(record.key),
            "timestamp": time,
            "headers": {name: as_text(value or b"") for name, value in record.headers},
            "body": body,
        }
        return self._identity.event(id, self._spec.described(data), **({} if time is None else {"time": time}))

    def _body(self, value: bytes) -> str | msgspec.Raw:
        if self._avro is not None:
            return self._avro.decode(value)
        body = as_body(value, json=self._spec.jsonBody)
        if body is None:
            raise ValueError(NOT_JSON)
        return body
