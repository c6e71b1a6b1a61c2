"""What would be the brokers' side: topics, groups and transactions behind one lock.

Nothing happens here by itself. Time-outs are looked at whenever somebody asks for something, by the clock that the
cluster was given, so that a test drives everything from one thread and always sees the same.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from eventbus.errors import FatalError, RetriableError
from eventbus.memory.groups import Group
from eventbus.memory.topics import Partition, Topic
from eventbus.memory.transactions import Coordinator, Markers
from eventbus.ports import Clock

# Another thread's step wakes a waiting one; a time-out does not, so waiting threads look by themselves now and then.
_LOOK_INTERVAL = 0.05


class _Turn:
    """A turn at the broker. A generator would do; this is entered for every single call, and ten times as fast."""

    def __init__(self, broker: Broker, *, changing: bool) -> None:
        self._broker = broker
        self._is_change = changing

    def __enter__(self) -> int:
        return self._broker.enter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._broker.leave(changed=self._is_change and kind is None)


class Broker:
    """Shared by everything that one `MemoryCluster` made."""

    def __init__(self, clock: Clock, session_timeout: float, transaction_timeout: float, markers: Markers) -> None:
        self.clock = clock
        self.topics: dict[str, Topic] = {}
        self.coordinator = Coordinator(clock.monotonic, transaction_timeout, markers)
        self._groups: dict[str, Group] = {}
        self._session_timeout = session_timeout
        self._changed = threading.Condition()
        self._changes = 0
        self._looked_at = -1.0
        self._looking = _Turn(self, changing=False)
        self._changing = _Turn(self, changing=True)

    def looking(self) -> AbstractContextManager[int]:
        """One thread at a time, with everything expired that is due. Yields the number of changes so far."""
        return self._looking

    def changing(self) -> AbstractContextManager[int]:
        """As `looking`; afterwards whoever waits for a change looks again."""
        return self._changing

    def enter(self) -> int:
        self._changed.acquire()
        now = self.clock.monotonic()
        if now != self._looked_at:
            self._looked_at = now
            self.coordinator.expire()
            for group in self._groups.values():
                group.expire(now, self._session_timeout)
        return self._changes

    def leave(self, *, changed: bool) -> None:
        if changed:
            self._changes += 1
            self._changed.notify_all()
        self._changed.release()

    def wait(self, changes: int, seconds: float) -> None:
        """Wait until there have been more than so many changes."""
        with self._changed:
            if self._changes == changes:
                self._changed.wait(min(seconds, _LOOK_INTERVAL))

    def group(self, name: str) -> Group:
        return self._groups.setdefault(name, Group(name))

    def forget_group(self, name: str) -> None:
        if self.group(name).members:
            raise FatalError(f"group {name} still has members")
        del self._groups[name]

    def forget_offsets(self, topic: str) -> None:
        for group in self._groups.values():
            group.forget(topic)

    def partition(self, topic: str, partition: int) -> Partition:
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            # As Kafka has it: whoever asks cannot tell whether it is gone, or not yet known to this broker.
            raise RetriableError(f"{topic}/{partition} does not exist")
        return known.partitions[partition]
