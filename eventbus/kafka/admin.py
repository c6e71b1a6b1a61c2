"""Questions to the brokers that belong to no consumer or producer: topics, their offsets, and groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
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
from eventbus.kafka.complaints import Complaints
from eventbus.kafka.config import REQUEST_TIMEOUT, Settings, make_client
from eventbus.kafka.errors import kafka_error, log_error, no_answer
from eventbus.ports import TopicInfo, TopicSpec

# librdkafka gives up first and says why; this only guards against an answer that never comes.
_GRACE = 5.0
_HURRIED = 2.0
_SPREAD_PAUSE = 0.02
_FIRST, _END = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]  # not annotated

T = TypeVar("T")


class KafkaAdmin:
    """One admin client, shared by everything a cluster has made. Thread-safe, as librdkafka is."""

    def __init__(self, settings: Settings) -> None:
        self._complaints = Complaints(settings)
        self._client = make_client(AdminClient, settings.admin() | {"error_cb": self._complaints.note})
        self._topic_settings = settings.connection.topics
        self._where = f"on {settings.bootstrap_servers}"
        self._fresh: set[str] = set()
        """What was created here and not described since. A broker that does not know it has not heard of it yet."""

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo | None]:
        names = list(dict.fromkeys(topics))
        deadline = Deadline(SystemClock(), REQUEST_TIMEOUT)
        while True:
            described = self._described(names)
            configs = self._configs([name for name, description in described.items() if description is not None])
            known = {
                name: _topic_info(description, configs[name])
                for name, description in described.items()
                if description is not None and name in configs
            }
            # Each question may go to another broker, and they learn of a new topic one after the other.
            unsure = {name for name in names if described[name] is not None or name in self._fresh} - known.keys()
            if not unsure or deadline.over():
                self._fresh.difference_update(names)
                return {name: known.get(name) for name in names}
            time.sleep(_SPREAD_PAUSE)

    def create(self, topics: Iterable[TopicSpec]) -> None:
        new = [
            NewTopic(spec.name, spec.partitions, -1, config={**spec.config, **self._topic_settings}) for spec in topics
        ]
        if not new:
            return
        futures = self._client.create_topics(new, request_timeout=REQUEST_TIMEOUT, operation_timeout=REQUEST_TIMEOUT)
        for name, future in futures.items():
            self._answer(future, f"creating topic {name}", unless=KafkaError.TOPIC_ALREADY_EXISTS)
            self._fresh.add(name)
        self._wait_until([topic.topic for topic in new], _is_ready)

    def delete(self, topics: Iterable[str]) -> None:
        names = list(topics)
        if not names:
            return
        futures = self._client.delete_topics(names, request_timeout=REQUEST_TIMEOUT, operation_timeout=REQUEST_TIMEOUT)
        for name, future in futures.items():
            self._answer(future, f"deleting topic {name}", unless=KafkaError.UNKNOWN_TOPIC_OR_PART)
            self._fresh.discard(name)
        self._wait_until(names, lambda description: description is None)

    def partitions(self, topic: str) -> range:
        deadline = Deadline(SystemClock(), _HURRIED)
        while (description := self._described([topic])[topic]) is None:
            if deadline.over():
                raise FatalError(f"topic {topic} does not exist {self._where}")
            time.sleep(_SPREAD_PAUSE)  # somebody may have created it a moment ago
        return range(len(description.partitions))

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset and the end, whatever the transactions in between."""
        return self._offset(topic, partition, _FIRST), self._offset(topic, partition, _END)

    def members(self, group: str) -> int:
        if group not in self._groups():
            return 0
        futures = self._client.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT)
        doing = f"asking who is in group {group}"
        description = self._answer(futures[group], doing, unless=KafkaError.GROUP_ID_NOT_FOUND)
        return 0 if description is None else len(description.members)

    def forget(self, groups: Iterable[str]) -> None:
        wanted = list(groups)
        names = self._groups().intersection(wanted) if wanted else ()
        if not names:
            return
        futures = self._client.delete_consumer_groups(list(names), request_timeout=REQUEST_TIMEOUT)
        for name, future in futures.items():
            self._answer(future, f"deleting group {name}", unless=KafkaError.GROUP_ID_NOT_FOUND)

    def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The end of each partition; 0 for one whose end cannot be told now, because it has no leader."""
        ends = {}
        deadline = Deadline(SystemClock(), _HURRIED)
        for partition in partitions:
            try:
                ends[partition] = self._offset(topic, partition, _END, deadline)
            except RetriableError:
                ends[partition] = 0
        return ends

    def _offset(self, topic: str, partition: int, spec: OffsetSpec, deadline: Deadline | None = None) -> int:
        ask = partial(self._ask_offset, topic, partition, spec)
        return self._answered(ask, topic, deadline or Deadline(SystemClock(), _HURRIED))

    def _answered(self, ask: Callable[[], T], topic: str, deadline: Deadline) -> T:
        """Left to itself, the client goes on asking whom it takes for the leader or the controller.

        A former leader, a new one with the epoch of the former, or a broker that has just died.
        """
        while True:
            try:
                return ask()
            except RetriableError:
                if deadline.over():
                    raise
                time.sleep(_SPREAD_PAUSE)
                with suppress(KafkaException):  # whoever asks will be told again
                    self._client.list_topics(topic, timeout=_HURRIED)

    def _ask_offset(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        place = TopicPartition(topic, partition)
        doing = f"asking for the offsets of {topic}/{partition}"
        futures = self._client.list_offsets(
            {place: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_HURRIED
        )
        offset: int = self._answer(futures[place], doing).offset
        if offset < 0:
            # So the client answers while it does not know who leads the partition.
            raise no_answer(f"{doing} {self._where}")
        return offset

    def _groups(self) -> set[str]:
        """Those that exist have a coordinator. To ask for another one's hangs the client when it is destroyed:

        where there has never been a group, it waits for an answer in vain, and later for what it has waited with.
        """
        doing = "asking which groups there are"
        found = self._answer(self._client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT), doing)
        for exception in found.errors:
            raise log_error(kafka_error(exception), f"{doing} {self._where}")
        return {each.group_id for each in found.valid}

    def close(self) -> None:
        del self._client

    def _described(self, topics: Iterable[str]) -> dict[str, TopicDescription | None]:
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        return self._answered(partial(self._ask_topics, names), names[0], Deadline(SystemClock(), REQUEST_TIMEOUT))

    def _ask_topics(self, names: list[str]) -> dict[str, TopicDescription | None]:
        futures = self._client.describe_topics(TopicCollection(names), request_timeout=_HURRIED)
        return {
            name: self._answer(future, f"describing topic {name}", unless=KafkaError.UNKNOWN_TOPIC_OR_PART)
            for name, future in futures.items()
        }

    def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        return self._answered(partial(self._ask_configs, names), names[0], Deadline(SystemClock(), REQUEST_TIMEOUT))

    def _ask_configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        futures = self._client.describe_configs(resources, request_timeout=_HURRIED)
        configs = {}
        for resource, future in futures.items():
            doing = f"reading the settings of topic {resource.name}"
            entries = self._answer(future, doing, unless=KafkaError.UNKNOWN_TOPIC_OR_PART)
            if entries is not None:
                configs[resource.name] = {name: each.value for name, each in entries.items() if each.value is not None}
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
        with self._complaints.asking(self._client, f"{doing} {self._where}"):
            try:
                return future.result(REQUEST_TIMEOUT + _GRACE)
            except KafkaException as exception:
                if kafka_error(exception).code() == unless:
                    return None
                raise
            except FutureTimeout:
                raise no_answer(f"{doing} {self._where}") from None
            finally:
                self._client.poll(0)  # hands out what the brokers have said


def _is_ready(description: TopicDescription | None) -> bool:
    return description is not None and all(partition.leader is not None for partition in description.partitions)


def _topic_info(description: TopicDescription, config: Mapping[str, str]) -> TopicInfo:
    partitions = description.partitions
    return TopicInfo(description.name, len(partitions), len(partitions[0].replicas), config, str(description.topic_id))
