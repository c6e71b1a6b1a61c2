"""The kinds of event sources. A new one is one file here and one line in `SOURCES`.

Other packages add kinds, too: see `sensors.plugins`.
"""

from __future__ import annotations

from eventsources.base import SourceKind, SourceSpec
from eventsources.sources.amqp import AmqpSource, AmqpSpec
from eventsources.sources.bitbucket import BitbucketEndpoint, BitbucketSpec
from eventsources.sources.calendar import CalendarSource, CalendarSpec
from eventsources.sources.file import FileSource, FileSpec
from eventsources.sources.generic import GenericSource, GenericSpec
from eventsources.sources.github import GithubEndpoint, GithubSpec
from eventsources.sources.gitlab import GitlabEndpoint, GitlabSpec
from eventsources.sources.kafka import KafkaSource, KafkaSourceSpec, runs_once
from eventsources.sources.minio import MinioSource, MinioSpec
from eventsources.sources.mqtt import MqttSource, MqttSpec
from eventsources.sources.nats import NatsSource, NatsSourceSpec
from eventsources.sources.redis import RedisSource, RedisSpec
from eventsources.sources.redis_stream import RedisStreamSource, RedisStreamSpec
from eventsources.sources.resource import ResourceSource, ResourceSpec
from eventsources.sources.slack import SlackEndpoint, SlackSpec
from eventsources.sources.sqs import SqsSource, SqsSpec
from eventsources.sources.webhook import WebhookEndpoint, WebhookSpec
from sensors.plugins import Plugins

SOURCES: dict[str, SourceKind] = {
    "webhook": SourceKind(WebhookSpec, WebhookEndpoint, once=False),
    "github": SourceKind(GithubSpec, GithubEndpoint, once=False),
    "gitlab": SourceKind(GitlabSpec, GitlabEndpoint, once=False),
    "bitbucket": SourceKind(BitbucketSpec, BitbucketEndpoint, once=False),
    "slack": SourceKind(SlackSpec, SlackEndpoint, once=False),
    "sqs": SourceKind(SqsSpec, SqsSource, once=False, extra="aws", modules=("botocore",)),
    "calendar": SourceKind(CalendarSpec, CalendarSource, once=True),
    "file": SourceKind(FileSpec, FileSource, once=True),
    "generic": SourceKind(GenericSpec, GenericSource, once=True, extra="grpc", modules=("grpc", "google.protobuf")),
    "kafka": SourceKind(KafkaSourceSpec, KafkaSource, once=runs_once),
    "amqp": SourceKind(AmqpSpec, AmqpSource, once=True, extra="amqp", modules=("pika",)),
    "mqtt": SourceKind(MqttSpec, MqttSource, once=True, extra="mqtt", modules=("paho.mqtt",)),
    "minio": SourceKind(MinioSpec, MinioSource, once=True, extra="minio", modules=("minio",)),
    "nats": SourceKind(NatsSourceSpec, NatsSource, once=True, extra="nats", modules=("nats", "nkeys")),
    "redis": SourceKind(RedisSpec, RedisSource, once=True, extra="redis", modules=("redis",)),
    "redisStream": SourceKind(RedisStreamSpec, RedisStreamSource, once=True, extra="redis", modules=("redis",)),
    "resource": SourceKind(ResourceSpec, ResourceSource, once=True, extra="kubernetes", modules=("kubernetes",)),
}

_LATER = "azureEventsHub azureQueueStorage azureServiceBus bitbucketserver emitter gerrit hdfs mns nsq"
_LATER += " pubSub pulsar sftp sns storageGrid stripe"

REFUSED: dict[str, str] = {
    kind: f"event sources of the kind `{kind}` are not supported yet; there are {', '.join(sorted(SOURCES))}"
    for kind in _LATER.split()
}
"""Kinds that argo-events has, and why they cannot be had here."""

PLUGINS = Plugins(
    "eventbus.sources",
    "event source",
    "an EventSource",
    frozenset(("eventBusName", "loggingFields", "replicas", "service", "sources", "template")),
    SourceKind,
    SourceSpec,
)
_added, _broken = PLUGINS.load(SOURCES)
REFUSED = {kind: why for kind, why in REFUSED.items() if kind not in _added} | _broken
SOURCES |= _added
