"""Questions to the brokers that belong to no consumer or producer: topics, offsets, what a group has committed.

Committed offsets are asked here even for a member's own group: the admin request answers "unstable" at once while a
transaction is pending, where the consumer's own call would sit out its time-out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package has no __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from eventbus.clock import Deadline, SystemClock
from eventbus.errors import FatalError, RetriableError
from eventbus.kafka.config import REQUEST_TIMEOUT, Settings, make_client
from eventbus.kafka.errors import kafka_error, log_error
from eventbus.ports import Committed, TopicInfo, TopicSpec

# librdkafka gives up first and says why; this only guards against an answer that never comes.
_GRACE = 5.0
_HURRIED = 2.0
_SPREAD_PAUSE = 0.02
_TIMEOUTS: dict[str, Any] = {"request_timeout": REQUEST_TIMEOUT, "operation_timeout": REQUEST_TIMEOUT}
_FIRST, _END = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]  # not annotated


class KafkaAdmin:
    """One admin client, shared by everything a cluster has made. Thread-safe, as librdkafka is."""

    def __init__(self, settings: Settings) -> None:
        self._client = make_client(AdminClient, settings.admin())
        self._where = f"on {settings.bootstrap_servers}"

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo | None]:
        described = self._described(topics)
        configs = self._configs(name for name, description in described.items() if description is not None)
        return {
            name: None if description is None else _topic_info(description, configs[name])
            for name, description in described.items()
        }

    def create(self, topics: Iterable[TopicSpec]) -> None:
        new = [NewTopic(spec.name, spec.partitions, -1, config=dict(spec.config)) for spec in topics]
        if not new:
            return
        for name, future in self._client.create_topics(new, **_TIMEOUTS).items():
            self._answer(future, f"creating topic {name}", unless=KafkaError.TOPIC_ALREADY_EXISTS)
        self._wait_until([topic.topic for topic in new], _is_ready)

    def delete(self, topics: Iterable[str]) -> None:
        names = list(topics)
        if not names:
            return
        for name, future in self._client.delete_topics(names, **_TIMEOUTS).items():
            self._answer(future, f"deleting topic {name}", unless=KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._wait_until(names, lambda description: description is None)

    def partitions(self, topic: str) -> range:
        description = self._described([topic])[topic]
        if description is None:
            raise FatalError(f"topic {topic} does not exist {self._where}")
        return range(len(description.partitions))

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, Committed | None]:
        doing = f"asking what group {group} has committed of {topic}"
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition) for partition in partitions])
        if not request.topic_partitions:
            return {}
        futures = self._client.list_consumer_group_offsets(
            [request], require_stable=True, request_timeout=REQUEST_TIMEOUT
        )
        answer: ConsumerGroupTopicPartitions = self._answer(futures[group], doing)
        entries = answer.topic_partitions or []
        for entry in entries:
            if entry.error is not None:
                raise log_error(entry.error, f"{doing} {self._where}")
        return {entry.partition: _committed(entry) for entry in entries}

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset and the end, whatever the transactions in between."""
        doing = f"asking for the offsets of {topic}/{partition}"
        asked = [self._list_offsets(topic, [partition], spec, REQUEST_TIMEOUT) for spec in (_FIRST, _END)]
        first, end = (self._answer(future, doing).offset for futures in asked for future in futures.values())
        return first, end

    def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The end of each partition; 0 for one that cannot be asked now, because it has no leader."""
        ends: dict[int, int] = {}
        if not partitions:
            return ends
        for topic_partition, future in self._list_offsets(topic, partitions, _END, _HURRIED).items():
            try:
                ends[topic_partition.partition] = self._answer(future, f"asking for the end of {topic}").offset
            except RetriableError:
                ends[topic_partition.partition] = 0
        return ends

    def _list_offsets(
        self, topic: str, partitions: Iterable[int], spec: OffsetSpec, timeout: float
    ) -> dict[TopicPartition, Future[Any]]:
        return self._client.list_offsets(
            {TopicPartition(topic, partition): spec for partition in partitions},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=timeout,
        )

    def close(self) -> None:
        del self._client

    def _described(self, topics: Iterable[str]) -> dict[str, TopicDescription | None]:
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT)
        return {
            name: self._answer(future, f"describing topic {name}", unless=KafkaError.UNKNOWN_TOPIC_OR_PART)
            for name, future in futures.items()
        }

    def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        if not resources:
            return {}
        futures = self._client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT)
        configs = {}
        for resource, future in futures.items():
            entries = self._answer(future, f"reading the settings of topic {resource.name}")
            configs[resource.name] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
        return configs

    def _wait_until(self, topics: Iterable[str], reached: Callable[[TopicDescription | None], bool]) -> None:
        """The controller's word takes a moment to spread to the brokers that clients ask."""
        names = list(topics)
        deadline = Deadline(SystemClock(), REQUEST_TIMEOUT)
        while not all(reached(description) for description in self._described(names).values()):
            if deadline.over():
                raise RetriableError(f"the brokers {self._where} do not all know of the change to {', '.join(names)}")
            time.sleep(_SPREAD_PAUSE)

    def _answer(self, future: Future[Any], doing: str, *, unless: int | None = None) -> Any:
        """What the future holds; None where the brokers answer with the error `unless`."""
        try:
            return future.result(REQUEST_TIMEOUT + _GRACE)
        except KafkaException as exception:
            error = kafka_error(exception)
            if error.code() == unless:
                return None
            raise log_error(error, f"{doing} {self._where}") from None
        except FutureTimeout:
            raise RetriableError(f"Kafka, {doing} {self._where}: no answer") from None


def _is_ready(description: TopicDescription | None) -> bool:
    return description is not None and all(partition.leader is not None for partition in description.partitions)


def _topic_info(description: TopicDescription, config: Mapping[str, str]) -> TopicInfo:
    partitions = description.partitions
    return TopicInfo(description.name, len(partitions), len(partitions[0].replicas), config)


def _committed(entry: TopicPartition) -> Committed | None:
    if entry.offset == OFFSET_INVALID:
        return None
    # librdkafka sends the terminating NUL of the metadata along with it.
    return Committed(entry.offset, (entry.metadata or "").rstrip("\0"))
