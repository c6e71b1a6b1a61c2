"""The `kafka` action: one record per action.

To the bus's own cluster the record is written in the transaction that marks the action done: exactly once. To any
other cluster it is written by a producer of its own before the action is marked done: at least once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from eventbus.cloudevents import to_kafka
from eventbus.errors import ConfigError
from eventbus.events import Event
from eventbus.formats import ACTION_TYPE
from eventbus.hashing import partition_of
from eventbus.names import MAX_TOPIC_LENGTH
from eventbus.ports import Output
from sensors.actions.base import Action, ActionCall, ActionContext, SpecModel, TransactionalAction
from sensors.actions.body import JSON, body_of, trace_of
from sensors.parameters import Payload
from sensors.spec.base import Flaw, get
from sensors.spec.fields import StringMap, Text

if TYPE_CHECKING:
    from sensors.actions.kafka_client import DeliveryProducer

_BROKER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_DEFAULT_PORT = ":9092"


def _valid_url(text: str) -> str:
    if not all(_BROKER.fullmatch(broker.strip()) for broker in text.split(",")):
        raise ValueError("must be one or more Kafka brokers as `host:port`, separated by commas")
    return text


def _valid_topic(text: str) -> str:
    if not _TOPIC.fullmatch(text) or len(text) > MAX_TOPIC_LENGTH or text in (".", ".."):
        raise ValueError(f"must consist of letters, digits, `-`, `_` and `.`, at most {MAX_TOPIC_LENGTH} characters")
    return text


class KafkaSpec(SpecModel):
    """Write a record to a Kafka topic."""

    not_yet: ClassVar[frozenset[str]] = frozenset(
        {"parameters", "partition", "requiredAcks", "compress", "flushFrequency", "tls", "version", "sasl"}
        | {"schemaRegistry", "secureHeaders"}
    )

    url: Annotated[Text, AfterValidator(_valid_url)] | None = None
    """The brokers of another cluster; without it the record goes to the bus's own, exactly once."""
    topic: Annotated[Text, AfterValidator(_valid_topic)]
    payload: Payload | None = None
    """The value. Without it, the value is a JSON object with one structured CloudEvent per dependency."""
    partitioningKey: Annotated[Text, Field(min_length=1)] | None = None
    """The record's key, the same for every action. Without it the records have no key and are spread evenly."""
    headers: StringMap = Field(default={})

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        headers = get(data, "headers")
        for name in headers if isinstance(headers, Mapping) else ():
            if not name or str(name).lower().startswith("ce_"):
                yield Flaw(
                    ("headers", name), f"the header `{name}` is not allowed: `ce_…` is for CloudEvents attributes"
                )

    def is_own_cluster(self, bootstrap_servers: str) -> bool:
        """Whether this goes to the bus with these brokers: one broker in common is enough to tell."""
        return self.url is None or bool(_brokers(self.url) & _brokers(bootstrap_servers))


def _brokers(text: str) -> frozenset[str]:
    names = (broker.strip().lower() for broker in text.split(",") if broker.strip())
    return frozenset(name if re.search(r":\d+$", name) else name + _DEFAULT_PORT for name in names)


def make_kafka_action(spec: KafkaSpec, context: ActionContext) -> Action | TransactionalAction:
    """Decide by the address which of the two guarantees can be given."""
    if spec.is_own_cluster(context.bootstrap_servers):
        return OwnClusterAction(spec, context)
    return OtherClusterAction(spec, context)


class OwnClusterAction:
    """Hands its record to the transaction that marks the action done."""

    Spec: ClassVar[type[SpecModel]] = KafkaSpec

    def __init__(self, spec: KafkaSpec, context: ActionContext) -> None:
        partitions = context.partitions.get(spec.topic)
        if partitions is None:
            raise ConfigError(f"the topic `{spec.topic}`, which a `kafka` action writes to, does not exist: create it")
        self._partitions = partitions
        self._spec = spec
        self._source = _source(context)

    def outputs(self, call: ActionCall) -> Sequence[Output]:
        key, value, headers = _record(self._spec, self._source, call)
        partition = partition_of(key or call.id.encode(), self._partitions)
        return (Output(self._spec.topic, partition, key, value, headers),)

    def close(self) -> None:
        pass


class OtherClusterAction:
    """Writes its record with an idempotent producer and waits until all in-sync replicas have it."""

    Spec: ClassVar[type[SpecModel]] = KafkaSpec

    def __init__(self, spec: KafkaSpec, context: ActionContext) -> None:
        from sensors.actions.kafka_client import DeliveryProducer  # noqa: PLC0415 - only who writes pays for it

        self._spec = spec
        self._source = _source(context)
        self._producer: DeliveryProducer = DeliveryProducer(spec.url or "")

    def invoke(self, call: ActionCall) -> str:
        key, value, headers = _record(self._spec, self._source, call)
        return self._producer.deliver(self._spec.topic, key, value, headers)

    def close(self) -> None:
        self._producer.close()


def _source(context: ActionContext) -> str:
    return f"/{context.namespace}/{context.sensor}"


def _record(spec: KafkaSpec, source: str, call: ActionCall) -> tuple[bytes | None, bytes, list[tuple[str, bytes]]]:
    """Key, value and headers: a CloudEvent in binary mode, whose id makes repetitions recognisable."""
    event = Event.new(
        source,
        call.trigger,
        body_of(call, spec.payload),
        type=ACTION_TYPE,
        id=call.id,
        **{"datacontenttype": JSON, **trace_of(call)},
    )
    headers, value = to_kafka(event)
    configured = {name.lower() for name in spec.headers}
    headers = [header for header in headers if header[0] not in configured]
    headers += [(name, text.encode()) for name, text in spec.headers.items()]
    key = None if spec.partitioningKey is None else spec.partitioningKey.encode()
    return key, value or b"", headers
