"""What would be the brokers' side: topics, groups and transactions behind one lock.

Nothing happens here by itself. Time-outs are looked at whenever somebody asks for something, by the clock that the
cluster was given, so that a test drives everything from one thread and always sees the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eventbus.errors import FatalError
from eventbus.memory.groups import Group
from eventbus.memory.topics import Partition, Topic
from eventbus.memory.transactions import Coordinator
from eventbus.ports import Clock

# Another thread's step wakes a waiting one; a time-out does not, so waiting threads look by themselves now and then.
_LOOK_INTERVAL = 0.05


class Broker:
    """Shared by everything that one `MemoryCluster` made."""

    def __init__(self, clock: Clock, session_timeout: float, transaction_timeout: float) -> None:
        self.clock = clock
        self.topics: dict[str, Topic] = {}
        self.coordinator = Coordinator(clock.monotonic, transaction_timeout)
        self._groups: dict[str, Group] = {}
        self._session_timeout = session_timeout
        self._changed = threading.Condition()
        self._changes = 0

    @contextmanager
    def looking(self) -> Iterator[int]:
        """One thread at a time, with everything expired that is due. Yields the number of changes so far."""
        with self._changed:
            self.coordinator.expire()
            for group in self._groups.values():
                group.expire(self.clock.monotonic(), self._session_timeout)
            yield self._changes

    @contextmanager
    def changing(self) -> Iterator[None]:
        """As `looking`; afterwards whoever waits for a change looks again."""
        with self.looking():
            yield
            self._changes += 1
            self._changed.notify_all()

    def wait(self, changes: int, seconds: float) -> None:
        """Wait until there have been more than so many changes."""
        with self._changed:
            if self._changes == changes:
                self._changed.wait(min(seconds, _LOOK_INTERVAL))

    def group(self, name: str) -> Group:
        return self._groups.setdefault(name, Group(name))

    def partition(self, topic: str, partition: int) -> Partition:
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            raise FatalError(f"{topic}/{partition} does not exist")
        return known.partitions[partition]
