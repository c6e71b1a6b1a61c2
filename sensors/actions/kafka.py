"""The `kafka` action: one record per action.

To the bus's own cluster the record is written in the transaction that marks the action done: exactly once. To any
other cluster it is written by a producer of its own before the action is marked done: at least once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import AfterValidator, Field, StrictInt

from eventbus.cloudevents import to_kafka
from eventbus.errors import ConfigError
from eventbus.events import Event
from eventbus.formats import ACTION_TYPE
from eventbus.hashing import partition_of
from eventbus.names import MAX_TOPIC_LENGTH
from eventbus.ports import Output
from sensors.actions.avro import AVRO, AvroEncoder, SchemaRegistry, lacking_avro
from sensors.actions.base import Action, ActionCall, ActionContext, ActionError, SpecModel, TransactionalAction
from sensors.actions.body import JSON, body_of, trace_of
from sensors.actions.patched import Patch, PatchableSpec
from sensors.actions.tls import Tls, TlsSecrets
from sensors.actions.values import SecureHeader
from sensors.parameters import Payload
from sensors.secrets import Refreshed, Secret, SecretKeySelector
from sensors.spec.base import Flaw, Path, entries, get
from sensors.spec.fields import Bool, StringMap, Text

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


BrokerList = Annotated[Text, AfterValidator(_valid_url)]
TopicName = Annotated[Text, AfterValidator(_valid_topic)]


class Sasl(SpecModel):
    """Who we are, by name and password."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """How the password is proved."""
    userSecret: SecretKeySelector
    """The secret with the name."""
    passwordSecret: SecretKeySelector
    """The secret with the password."""


class _Credentials(msgspec.Struct, frozen=True):
    """The values of the secrets that a connection needs."""

    tls: TlsSecrets = TlsSecrets()
    user: Secret | None = None
    password: Secret | None = None


_WITHOUT_EFFECT = {
    "partition": "`partitioningKey` decides where records go",
    "requiredAcks": "a record is written when all in-sync replicas have it",
    "flushFrequency": "every record is waited for",
    "version": "the client asks the brokers",
}
"""Fields of argo-events that there is no need for, and why."""


class KafkaSpec(PatchableSpec):
    """Write a record to a Kafka topic."""

    hidden: ClassVar[frozenset[str]] = frozenset(("partition", "requiredAcks", "flushFrequency", "version"))
    patchable: ClassVar[tuple[str, ...]] = ("topic", "partitioningKey", "headers.*", "payload.*.src.value")

    url: BrokerList | None = None
    """The brokers of another cluster; without it the record goes to the bus's own, exactly once."""
    topic: TopicName
    payload: Payload | None = None
    """The value. Without it, the value is a JSON object with one structured CloudEvent per dependency."""
    partitioningKey: Annotated[Text, Field(min_length=1)] | None = None
    """The record's key, the same for every action. Without it the records have no key and are spread evenly."""
    headers: StringMap = Field(default={})
    secureHeaders: tuple[SecureHeader, ...] = ()
    """Headers whose values are secrets, read for every record. They can be read wherever the topic can."""
    compress: Bool = False
    """Write compressed to another cluster. What goes to the bus's own is compressed as its topic says."""
    schemaRegistry: SchemaRegistry | None = None
    tls: Tls | None = None
    sasl: Sasl | None = None
    partition: StrictInt | None = None
    requiredAcks: StrictInt | None = None
    flushFrequency: StrictInt | None = None
    version: Text | None = None

    def warnings(self) -> Iterator[Flaw]:
        for field, reason in _WITHOUT_EFFECT.items():
            if getattr(self, field) is not None:
                yield Flaw((field,), f"`{field}` does nothing: {reason}")

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        yield from lacking_avro(data)
        for field in ("tls", "sasl", "schemaRegistry"):
            if get(data, field) is not None and isinstance(data, Mapping) and get(data, "url") is None:
                message = f"`{field}` needs a `url`: it is for another cluster than the bus's own"
                yield Flaw((field,), message, about_key=True)
        headers = get(data, "headers")
        written: list[tuple[Path, Any]] = [
            (("headers", name), name) for name in (headers if isinstance(headers, Mapping) else ())
        ]
        written += [(("secureHeaders", n, "name"), get(each, "name")) for n, each in entries(data, "secureHeaders")]
        for path, name in written:
            if not name or str(name).lower().startswith("ce_"):
                yield Flaw(path, f"the header `{name}` is not allowed: `ce_…` is for CloudEvents attributes")

    def credentials(self) -> _Credentials:
        """Raises `ConfigError` when a secret is not there."""
        tls = TlsSecrets() if self.tls is None else self.tls.secrets()
        if self.sasl is None:
            return _Credentials(tls)
        return _Credentials(tls, self.sasl.userSecret.read(), self.sasl.passwordSecret.read())

    def connection(self, credentials: _Credentials) -> dict[str, Any]:
        """The settings of librdkafka."""
        settings: dict[str, Any] = {"bootstrap.servers": self.url or ""}
        if self.compress:
            settings["compression.type"] = "snappy"  # as argo-events does
        if self.tls is not None or self.sasl is not None:
            protocol = "ssl" if self.sasl is None else "sasl_plaintext" if self.tls is None else "sasl_ssl"
            settings["security.protocol"] = protocol
        if self.tls is not None:
            settings |= tls_settings(self.tls, credentials.tls)
        if self.sasl is not None and credentials.user is not None and credentials.password is not None:
            settings["sasl.mechanism"] = self.sasl.mechanism
            settings["sasl.username"] = credentials.user.reveal()
            settings["sasl.password"] = credentials.password.reveal()
        return settings

    def is_own_cluster(self, bootstrap_servers: str) -> bool:
        """Whether this goes to the bus with these brokers: one broker in common is enough to tell."""
        return self.url is None or bool(_brokers(self.url) & _brokers(bootstrap_servers))


def tls_settings(tls: Tls, secrets: TlsSecrets) -> dict[str, Any]:
    """Of librdkafka."""
    files = {
        "ssl.ca.location": tls.caCertFile,
        "ssl.certificate.location": tls.clientCertFile,
        "ssl.key.location": tls.clientKeyFile or tls.clientCertFile,
    }
    texts = {
        "ssl.ca.pem": secrets.ca,
        "ssl.certificate.pem": secrets.cert,
        "ssl.key.pem": secrets.key or secrets.cert,
    }
    settings: dict[str, Any] = {name: file for name, file in files.items() if file is not None}
    settings |= {name: text.reveal() for name, text in texts.items() if text is not None}
    return settings | {"enable.ssl.certificate.verification": not tls.insecureSkipVerify}


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
        if spec.tls is not None or spec.sasl is not None or spec.schemaRegistry is not None:
            fields = "`tls`, `sasl` and `schemaRegistry`"
            raise ConfigError(f"{fields} of a `kafka` action are for another cluster, and this is the bus's own")
        self._partitions = {spec.topic: partitions}
        self._context = context
        self._patch = Patch(spec)
        self._source = _source(context)
        _secret_headers(spec)  # a secret that is not there is told now

    def outputs(self, call: ActionCall) -> Sequence[Output]:
        spec = self._patch.spec(call)
        key, value, headers = _record(spec, self._source, call)
        partition = partition_of(key or call.id.encode(), self._partition_count(spec.topic))
        return (Output(spec.topic, partition, key, value, headers),)

    def _partition_count(self, topic: str) -> int:
        """Of a topic that an event may have chosen: it must exist, and not be one of those that sensors live on."""
        if topic not in self._partitions:
            if topic.startswith(f"{self._context.namespace}-"):
                message = f"the parameters lead to the topic `{topic}`, which is one of the bus's own"
                raise ActionError(message, retriable=False, sent=False)
            partitions = self._context.partitions.get(topic)
            if partitions is None:
                raise ActionError(f"the topic `{topic}` does not exist", retriable=False, sent=False)
            self._partitions[topic] = partitions
        return self._partitions[topic]

    def close(self) -> None:
        pass


class OtherClusterAction:
    """Writes its record with an idempotent producer and waits until all in-sync replicas have it."""

    Spec: ClassVar[type[SpecModel]] = KafkaSpec

    def __init__(self, spec: KafkaSpec, context: ActionContext) -> None:
        self._spec = spec
        self._patch = Patch(spec)
        self._source = _source(context)
        self._avro = None if spec.schemaRegistry is None else AvroEncoder(spec.schemaRegistry)
        self._producer: Refreshed[_Credentials, DeliveryProducer] = Refreshed(
            spec.credentials, self._new_producer, lambda producer: producer.close()
        )
        _secret_headers(spec)  # a secret that is not there is told now

    def invoke(self, call: ActionCall) -> str:
        spec = self._patch.spec(call)
        key, value, headers = _record(spec, self._source, call, self._avro)
        try:
            producer = self._producer.get()
        except ConfigError as error:
            raise ActionError(str(error), retriable=True, sent=False) from None
        return producer.deliver(spec.topic, key, value, headers)

    def close(self) -> None:
        self._producer.close()
        if self._avro is not None:
            self._avro.close()

    def _new_producer(self, credentials: _Credentials) -> DeliveryProducer:
        from sensors.actions.kafka_client import DeliveryProducer  # noqa: PLC0415 - only who writes pays for it

        return DeliveryProducer(self._spec.connection(credentials))


def _secret_headers(spec: KafkaSpec) -> dict[str, str]:
    return {header.name: header.valueFrom.read().reveal() for header in spec.secureHeaders}


def _source(context: ActionContext) -> str:
    return f"/{context.namespace}/{context.sensor}"


def _record(
    spec: KafkaSpec, source: str, call: ActionCall, avro: AvroEncoder | None = None
) -> tuple[bytes | None, bytes, list[tuple[str, bytes]]]:
    """Key, value and headers: a CloudEvent in binary mode, whose id makes repetitions recognisable."""
    body = body_of(call, spec.payload)
    event = Event.new(
        source,
        call.trigger,
        body if avro is None else avro.encode(body),
        type=ACTION_TYPE,
        id=call.id,
        **{"datacontenttype": JSON if avro is None else AVRO, **trace_of(call)},
    )
    headers, value = to_kafka(event)
    try:
        configured = {**spec.headers, **_secret_headers(spec)}
    except ConfigError as error:  # a secret that is not there, but may come back
        raise ActionError(str(error), retriable=True, sent=False) from None
    replaced = {name.lower() for name in configured}
    headers = [header for header in headers if header[0] not in replaced]
    headers += [(name, text.encode()) for name, text in configured.items()]
    key = None if spec.partitioningKey is None else spec.partitioningKey.encode()
    return key, value or b"", headers
