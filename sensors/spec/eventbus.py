"""What an EventBus manifest may contain: where Kafka is, and how its clients prove who they are.

argo-events' fields are read where they mean something here. Secrets are read anew for every client and every token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from pydantic import Field

from eventbus.errors import ConfigError
from eventbus.kafka.config import setting_fault
from eventbus.kafka.connection import Connection, fixed_setting, fixed_topic_setting
from eventbus.kafka.tokens import Tokens
from eventbus.names import BusName
from sensors.actions.kafka import BrokerList, tls_settings
from sensors.actions.tls import Tls
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Bool, StringMap, Text
from sensors.spec.manifest import Manifest
from sensors.spec.oauth import MskIam, OAuth

_WITH_FIELDS = {
    "security.protocol": "`tls` and `sasl` decide that",
    "sasl.mechanism": "write it as `sasl.mechanism` of the manifest",
    "sasl.mechanisms": "write it as `sasl.mechanism` of the manifest",
    "sasl.username": "name a secret in `sasl.userSecret`",
    "sasl.password": "name a secret in `sasl.passwordSecret`",
    "sasl.oauthbearer.client.secret": "name a secret in `sasl.oauth.clientSecretSecret`",
    "ssl.ca.pem": "name a secret in `tls.caCertSecret`",
    "ssl.certificate.pem": "name a secret in `tls.clientCertSecret`",
    "ssl.key.pem": "name a secret in `tls.clientKeySecret`",
}
"""Settings of librdkafka that a manifest has fields for, most of them because they are secret."""


class BusTls(Tls):
    """How to trust the brokers, and who we are."""

    enabled: Bool = True
    """As in argo-events: false leaves TLS off."""


_BY_MECHANISM = {
    "PLAIN": ("userSecret", "passwordSecret"),
    "SCRAM-SHA-256": ("userSecret", "passwordSecret"),
    "SCRAM-SHA-512": ("userSecret", "passwordSecret"),
    "OAUTHBEARER": ("oauth",),
    "AWS_MSK_IAM": ("awsMskIam",),
    "GSSAPI": (),
}
"""What each mechanism needs; nothing else goes with it."""


class BusSasl(SpecModel):
    """Who we are."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"] = "PLAIN"
    """How that is proved. `GSSAPI` is set up in `config`, by librdkafka's `sasl.kerberos.…`."""
    userSecret: SecretKeySelector | None = None
    """The secret with the name, for `PLAIN` and `SCRAM`."""
    passwordSecret: SecretKeySelector | None = None
    """The secret with the password, for `PLAIN` and `SCRAM`."""
    oauth: OAuth | None = None
    awsMskIam: MskIam | None = None

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        mechanism = get(data, "mechanism") or "PLAIN"
        needed = _BY_MECHANISM.get(mechanism) if isinstance(mechanism, str) else None
        if needed is None or not isinstance(data, Mapping):
            return
        for field in ("userSecret", "passwordSecret", "oauth", "awsMskIam"):
            given = data.get(field) is not None
            if field in needed and not given:
                yield Flaw((), f"the mechanism `{mechanism}` needs `{field}`", about_key=True)
            if field not in needed and given:
                yield Flaw((field,), f"the mechanism `{mechanism}` has no `{field}`", about_key=True)
        if mechanism == "AWS_MSK_IAM" and find_spec("aws_msk_iam_sasl_signer") is None:
            message = "this needs packages that are not installed: install `kafka-eventbus[msk]`"
            yield Flaw(("mechanism",), message)

    def settings(self) -> dict[str, Any]:
        """Raises `ConfigError` when a secret is not there."""
        mechanism = "OAUTHBEARER" if self.tokens() is not None else self.mechanism
        settings: dict[str, Any] = {"sasl.mechanism": mechanism}
        if self.userSecret is not None and self.passwordSecret is not None:
            settings["sasl.username"] = self.userSecret.read().reveal()
            settings["sasl.password"] = self.passwordSecret.read().reveal()
        if self.oauth is not None:
            self.oauth.credentials()
        return settings

    def tokens(self) -> Tokens | None:
        source = self.oauth or self.awsMskIam
        return None if source is None else Tokens(source.token)


class ConsumerGroup(SpecModel):
    """argo-events' settings of its one consumer group."""

    groupName: Text | None = None
    """Does nothing."""
    oldest: Bool = False
    """Does nothing: a sensor's own `startFrom` says where it begins."""
    startOldest: Bool = False
    """What argo-events' pages call `oldest`."""
    rebalanceStrategy: Text | None = None
    """Does nothing."""


class KafkaAddress(SpecModel):
    """Where a Kafka cluster is, and who we are there."""

    url: BrokerList
    """The brokers, as `host:port`, separated by commas."""
    tls: BusTls | None = None
    sasl: BusSasl | None = None

    def security(self) -> dict[str, Any]:
        """librdkafka's settings, as they are now. Raises `ConfigError` when a secret is not there."""
        tls = self.tls if self.tls is not None and self.tls.enabled else None
        settings = {} if tls is None else tls_settings(tls, tls.secrets())
        settings |= {} if self.sasl is None else self.sasl.settings()
        protocols = {
            (False, False): "plaintext",
            (True, False): "ssl",
            (False, True): "sasl_plaintext",
            (True, True): "sasl_ssl",
        }
        return settings | {"security.protocol": protocols[tls is not None, self.sasl is not None]}

    def tokens(self) -> Tokens | None:
        """Where clients get theirs that log in by token."""
        return None if self.sasl is None else self.sasl.tokens()


class KafkaBus(KafkaAddress):
    """A Kafka cluster."""

    without_effect: ClassVar[Mapping[str, str]] = {
        "version": "`version` does nothing here: the client asks the brokers",
        "consumerGroup": "`consumerGroup` does nothing here: every stage of a sensor has a group of its own",
        "partitioner": "`partitioner` does nothing here: an event's key decides, without one each has its turn",
        "consumerBatchMaxWait": "`consumerBatchMaxWait` does nothing here: nobody waits for a batch to fill",
    }
    """What argo-events has here and this bus has no use for, and why."""

    config: StringMap = Field(default={})
    """Settings of all clients, by librdkafka's names."""
    producer: StringMap = Field(default={})
    """Settings of those that write."""
    consumer: StringMap = Field(default={})
    """Settings of those that read."""
    topics: StringMap = Field(default={})
    """Settings of topics that are created, by Kafka's names. Topics that exist stay as they are."""
    topic: Text | None = None
    """As in argo-events, but it cannot be chosen: it is `{namespace}-{name}`, or left out."""
    version: Text | None = None
    """Does nothing: the client asks the brokers."""
    consumerGroup: ConsumerGroup | None = None
    """Does nothing: every stage of a sensor has a group of its own."""
    partitioner: Text | None = None
    """Does nothing: an event's key decides, without one each partition has its turn."""
    consumerBatchMaxWait: Text | None = None
    """Does nothing: nobody waits for a batch to fill."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        for field in ("config", "producer", "consumer"):
            yield from setting_flaws(field, get(data, field), of_consumer=field == "consumer")
        for name, _ in _texts(get(data, "topics")):
            reason = fixed_topic_setting(name)
            if reason is not None:
                yield Flaw(("topics", name), reason, about_key=True)

    def connection(self) -> Connection:
        """Raises `ConfigError` when a secret is not there: now rather than at the first client."""
        self.security()
        return Connection(
            self.url, self.config, self.producer, self.consumer, self.topics, self.security, self.tokens()
        )


def _texts(settings: Any) -> Iterator[tuple[str, str]]:
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        if isinstance(name, str) and isinstance(value, str):
            yield name, value


def setting_flaws(field: str, settings: Any, *, of_consumer: bool) -> Iterator[Flaw]:
    """What is wrong with a map of librdkafka's settings."""
    for name, value in _texts(settings):
        if name in _WITH_FIELDS:
            yield Flaw((field, name), f"`{name}` does not belong here: {_WITH_FIELDS[name]}", about_key=True)
        elif (reason := fixed_setting(name)) is not None:
            yield Flaw((field, name), reason, about_key=True)
        elif (fault := setting_fault(name, value, of_consumer=of_consumer)) is not None:
            yield Flaw((field, name), fault)


class EventBusSpec(SpecModel):
    """What carries the events."""

    refused: ClassVar[Mapping[str, str]] = {
        name: f"`{name}` is not possible: this bus is on Kafka; write `kafka` with its `url`"
        for name in ("nats", "jetstream", "jetstreamExotic")
    }

    kafka: KafkaBus


class EventBusManifest(Manifest):
    """An EventBus, as it is written in a YAML file."""

    called = "EventBus"
    plural = "buses"

    kind: Literal["EventBus"]
    spec: EventBusSpec

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        name, namespace = get(data, "metadata", "name"), get(data, "metadata", "namespace") or "default"
        try:
            expected = BusName(str(namespace), str(name)).event_topic
        except ConfigError as error:
            yield Flaw(("metadata", "name"), str(error))
            return
        topic = get(data, "spec", "kafka", "topic")
        if isinstance(topic, str) and topic != expected:
            message = f"`topic` cannot be chosen: events are in the topic `{expected}`; leave it out"
            yield Flaw(("spec", "kafka", "topic"), message)

    def advice(self) -> Iterator[Flaw]:
        for field, reason in KafkaBus.without_effect.items():
            if field in self.spec.kafka.model_fields_set:
                yield Flaw(("spec", "kafka", field), reason, about_key=True)

    @property
    def bus_name(self) -> BusName:
        return BusName(self.metadata.namespace, self.metadata.name)

    def connection(self) -> Connection:
        """Raises `ConfigError` when a secret is not there."""
        return self.spec.kafka.connection()
