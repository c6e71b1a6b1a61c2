"""Are the topics still those that this replica began with? Asked every few seconds.

Nobody else would tell. A client takes a topic that was made anew for the old one and goes on at the old offsets, a
record for a topic that is gone is refused like one that is too large, and with more partitions a key moves to another
one, where nothing of what it belongs to is known.

One broker may know less than the others for a moment, so what is wrong counts when it stays wrong.
"""

from __future__ import annotations

import threading

from eventbus.errors import FatalError, RetriableError
from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import Clock, Cluster
from eventbus.topics import Topology

_INTERVAL = 5.0
_DOUBT_INTERVAL = 0.5
_PATIENCE = 3.0


class TopicGuard:
    """For the three stages of one replica together; whichever of them comes first asks."""

    def __init__(self, cluster: Cluster, name: SensorName, topology: Topology, clock: Clock) -> None:
        self._cluster = cluster
        self._name = name
        self._clock = clock
        self._partitions = {
            name.topic(Kind.TRIGGER): topology.trigger_partitions,
            name.topic(Kind.STATE): topology.trigger_partitions,
            name.topic(Kind.ACTION): topology.action_partitions,
        }
        self._topics = [name.event_topic, *(name.topic(kind) for kind in Kind)]
        self._ids: dict[str, str] = {}
        self._asking = threading.Lock()
        self._next = clock.monotonic()
        self._wrong_since: float | None = None

    def check(self) -> None:
        """Raises `FatalError` when a topic is no longer what it was. Cheap where it is not yet time to ask again."""
        if self._clock.monotonic() < self._next or not self._asking.acquire(blocking=False):
            return
        try:
            self._ask()
        finally:
            self._asking.release()

    def misses(self, topic: str) -> bool:
        """Whether this is one of the sensor's own topics, and gone. A record for it is worth keeping."""
        try:
            return topic in self._topics and self._cluster.describe([topic])[topic] is None
        except RetriableError:
            return True

    def _ask(self) -> None:
        try:
            problem = self._problem()
        except RetriableError:
            problem = None  # whoever reads or writes finds out by himself
        now = self._clock.monotonic()
        if problem is None:
            self._wrong_since = None
        elif self._wrong_since is None:
            self._wrong_since = now
        elif now - self._wrong_since >= _PATIENCE:
            raise FatalError(problem)
        self._next = now + (_INTERVAL if problem is None else _DOUBT_INTERVAL)

    def _problem(self) -> str | None:
        for topic, info in self._cluster.describe(self._topics).items():
            if info is None:
                return (
                    f"the topic `{topic}` was deleted while the sensor {self._name} was running, and what it still "
                    "needed of it is lost. Start the sensor again: it makes the topic anew and says how to go on"
                )
            if self._ids.setdefault(topic, info.id) != info.id:
                return (
                    f"the topic `{topic}` was deleted and made anew while the sensor {self._name} was running: "
                    f"offsets of the old one mean nothing in the new one. {self._offsets_to_delete(topic)}"
                    "Start the sensor again: it says how to go on"
                )
            expected = self._partitions.get(topic, info.partitions)
            if info.partitions != expected:
                return (
                    f"the topic `{topic}` had {expected} partitions and now has {info.partitions}: keys are in other "
                    f"partitions than before. Start the sensor {self._name} again: it says how to go on"
                )
        return None

    def _offsets_to_delete(self, topic: str) -> str:
        """Kafka deletes offsets with their topic; but until it was noticed, more may have been committed."""
        groups = [self._name.group(stage) for stage in Stage if self._name.input_topic(stage) == topic]
        return "".join(f"Stop all its replicas and delete the offsets of the group `{group}`. " for group in groups)
