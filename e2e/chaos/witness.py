"""A read_committed consumer that reads the action topic while everything happens, and remembers what it saw."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Mapping

from e2e.chaos.evidence import Fingerprint, fingerprint
from eventbus.bus import Bus
from eventbus.errors import LogError, RetriableError

_POLL_SECONDS = 0.2


class Witness(threading.Thread):
    """Keeps only fingerprints, and when the latest record was seen."""

    def __init__(self, bus: Bus, topic: str, partitions: int) -> None:
        super().__init__(name="witness", daemon=True)
        self.seen: list[Fingerprint] = []
        self._seen: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self.latest = 0.0
        """The moment (of the monotonic clock) at which the latest record came."""
        self.failure: LogError | None = None
        self._topic = topic
        self._reader = bus.cluster.reader()
        for partition in range(partitions):
            self._reader.open(topic, partition, 0)
        self._stopped = threading.Event()

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether it is past these ends, or will never be."""
        return self.failure is not None or all(
            self._reader.position(self._topic, partition) >= end for partition, end in ends.items()
        )

    def beyond(self, offsets: Mapping[int, int]) -> int:
        """How many records it has seen at or after these offsets."""
        return sum(len(seen) - bisect_left(seen, offsets.get(partition, 0)) for partition, seen in self._seen.items())

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                records = self._reader.read(5000, _POLL_SECONDS)
            except RetriableError:
                continue
            except LogError as error:
                self.failure = error
                break
            if records:
                self.latest = time.monotonic()
                self.seen += map(fingerprint, records)
                for record in records:
                    self._seen[record.partition].append(record.offset)
        self._reader.close()
