"""Slots: which of a sensor's replicas is this?

A slot names the transactional ids. A replica that restarts in the same slot takes over its predecessor's unfinished
transaction at once instead of waiting for its time-out. Two replicas in one slot would fence each other, so:

- `--slot` wins, for those who know what they do;
- in a StatefulSet it is the pod's ordinal (`POD_NAME` ends in `-0`, `-1`, …);
- on one machine it is the first number whose lock file is free. The lock dies with the process.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from itertools import count
from pathlib import Path

from platformdirs import user_state_path

from eventbus.names import SensorName

_ORDINAL = re.compile(r".*-(\d+)")


class Slot:
    """A claimed slot. Keep it until the replica has stopped."""

    def __init__(self, name: str, lock: int | None = None) -> None:
        self.name = name
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def claim_slot(sensor: SensorName, wanted: str | None = None) -> Slot:
    if wanted is not None:
        return Slot(wanted)
    ordinal = _ORDINAL.fullmatch(os.environ.get("POD_NAME", ""))
    if ordinal:
        return Slot(ordinal[1])
    directory = Path(os.environ.get("EVENTBUS_SLOT_DIR") or user_state_path("kafka-eventbus") / "slots")
    directory.mkdir(parents=True, exist_ok=True)
    for number in count():
        descriptor = os.open(directory / f"{sensor.prefix}-{number}.slot", os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Slot(str(number), descriptor)
        os.close(descriptor)
    raise AssertionError("count() does not end")
