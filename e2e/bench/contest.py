"""One round of each measurement: the null loop first, then ours, on the same warm broker."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from threading import Event as Flag
from threading import Thread
from typing import TypeVar

import msgspec
from confluent_kafka import Message, Producer

from e2e.bench.null_loop import NullLoop
from eventbus import Bus, Event
from eventbus.cloudevents import to_kafka
from eventbus.hashing import partition_of
from eventbus.names import Stage
from eventbus.ports import TopicSpec
from sensors import ActionCall, Replica, Sensor

_PARTITIONS = 4
_IDLE_POLL = 0.005
_PATIENCE = 60.0
T = TypeVar("T")
_DATA = {"order": 1234567, "customer": "c-0815", "lines": [{"sku": "4711", "count": 2}], "note": "x" * 120}


class Round(msgspec.Struct):
    """What ours and the null loop took, in seconds: per event, or from event to action."""

    ours: float
    null: float
    ours_cpu: float = 0.0
    null_cpu: float = 0.0


class Contest:
    """A bus full of events. Every round has its own consumer groups and output topics."""

    def __init__(self, servers: str, events: int) -> None:
        self._servers = servers
        self._events = events
        self._numbers = count()
        self._bus = Bus.connect(servers, namespace="bench", bus=f"b{time.time_ns()}")
        self._bus.ensure(_PARTITIONS)
        self._bus.publish_all((_event(number) for number in range(events)), timeout=_PATIENCE)

    # --- throughput -------------------------------------------------------------------------------------------------

    def throughput(self, conditions: str, hops: int) -> Round:
        null, null_cpu = self._throughput_null(hops)
        ours, ours_cpu = self._throughput_ours(conditions, hops)
        return Round(ours / self._events, null / self._events, ours_cpu / self._events, null_cpu / self._events)

    def _throughput_null(self, hops: int) -> tuple[float, float]:
        loops = self._null_loops(hops, from_end=False)

        def drive(loop: NullLoop) -> None:
            copied = 0
            while copied < self._events:
                copied += len(loop.step(_IDLE_POLL))

        with _measured() as spent, _threads(drive, loops):
            pass
        result = spent()
        for loop in loops:
            loop.close()
        return result

    def _throughput_ours(self, conditions: str, hops: int) -> tuple[float, float]:
        replica = self._replica(conditions, "earliest", lambda _call: None)
        loops = [replica.loops[stage] for stage in (Stage.MATCH, Stage.JOIN)[:hops]]
        for loop in loops:
            loop.observe_eagerly()
            while not loop.ready():
                loop.step(_IDLE_POLL)
        stopped = Flag()

        def drive(index: int) -> None:
            while not stopped.is_set():
                loops[index].step(_IDLE_POLL)

        with _measured() as spent, _threads(drive, range(hops)):
            for loop in loops:
                begun = time.monotonic()
                while loop.caught_up_at() < begun:
                    stopped.wait(_IDLE_POLL)
            result = spent()
            stopped.set()
        for loop in replica.loops.values():
            loop.close()
        return result

    # --- latency ----------------------------------------------------------------------------------------------------

    def latency(self, rate: float, seconds: float) -> Round:
        """From the moment an event is published until its action runs. The mode is at most once, which needs two
        transactions, so the other side is two null loops."""
        return Round(self._latency_ours(rate, seconds), self._latency_null(rate, seconds))

    def _latency_null(self, rate: float, seconds: float) -> float:
        loops = self._null_loops(2, from_end=True)
        arrived: dict[str, float] = {}
        stopped = Flag()

        def drive(index: int) -> None:
            while not stopped.is_set():
                for message in loops[index].step(0.05):
                    if index == 1:
                        arrived[_event_id(message)] = time.monotonic()

        with _threads(drive, range(2)):
            sent = self._publish_at(rate, seconds)
            _wait_for(sent, arrived, stopped)
        for loop in loops:
            loop.close()
        return _median(sent, arrived)

    def _latency_ours(self, rate: float, seconds: float) -> float:
        arrived: dict[str, float] = {}

        def note(call: ActionCall) -> None:
            arrived[call.events["a"].id] = time.monotonic()

        with self._replica("a || b", "latest", note) as replica:
            replica.wait_ready()
            sent = self._publish_at(rate, seconds)
            _wait_for(sent, arrived, Flag())
        return _median(sent, arrived)

    def _publish_at(self, rate: float, seconds: float) -> dict[str, float]:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0, "enable.idempotence": True})
        sent: dict[str, float] = {}
        begun = time.monotonic()
        for number in range(int(rate * seconds)):
            producer.poll(max(0.0, begun + number / rate - time.monotonic()))
            event = Event.new("shop", "a", _DATA, partitionkey=f"k{number % 64}")
            headers, value = to_kafka(event)
            partition = partition_of(event.key or b"", _PARTITIONS)
            sent[event.id] = time.monotonic()
            producer.produce(self._bus.name.event_topic, value, event.key, partition, headers=[*headers])
        producer.flush()
        return sent

    # --- parts ------------------------------------------------------------------------------------------------------

    def _null_loops(self, hops: int, *, from_end: bool) -> list[NullLoop]:
        topics = [self._bus.name.event_topic, *(self._topic() for _ in range(hops))]
        return [
            NullLoop(self._servers, source, target, name=f"null-{target}", from_end=from_end)
            for source, target in pairwise(topics)
        ]

    def _topic(self) -> str:
        name = f"{self._bus.name.event_topic}-null-{next(self._numbers)}"
        self._bus.cluster.create([TopicSpec(name, _PARTITIONS, {})])
        return name

    def _replica(self, conditions: str, start_from: str, function: Callable[[ActionCall], None]) -> Replica:
        sensor = Sensor(f"s{next(self._numbers)}", {"a": ("shop", "a"), "b": ("shop", "b")}, start_from=start_from)
        sensor.trigger("t", conditions)(function)
        return sensor.start(self._bus, slot="0", partitions=_PARTITIONS)


def _event(number: int) -> Event:
    return Event.new("shop", "ab"[number % 2], _DATA, id=f"event-{number}", partitionkey=f"k{number // 2 % 64}")


def _event_id(message: Message) -> str:
    value = dict(message.headers() or ())["ce_id"]
    return value.decode() if isinstance(value, bytes) else str(value)


def _wait_for(sent: dict[str, float], arrived: dict[str, float], stopped: Flag) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not sent.keys() <= arrived.keys() and time.monotonic() < deadline:
        stopped.wait(_IDLE_POLL)
    stopped.set()


def _median(sent: dict[str, float], arrived: dict[str, float]) -> float:
    return statistics.median(arrived[event] - sent[event] for event in sent)


@contextmanager
def _threads(function: Callable[[T], None], arguments: Iterable[T]) -> Iterator[None]:
    threads = [Thread(target=function, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


@contextmanager
def _measured() -> Iterator[Callable[[], tuple[float, float]]]:
    """Gives a function that tells the wall-clock and CPU seconds since the block began."""
    wall, cpu = time.monotonic(), time.process_time()
    yield lambda: (time.monotonic() - wall, time.process_time() - cpu)
