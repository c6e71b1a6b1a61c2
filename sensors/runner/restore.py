"""Reads the state that partitions need before they can run, a slice at a time.

A state partition's end is asked read_uncommitted, by whoever already knows the committed offset, and reading goes on
until everything before that end is stable: transaction markers reach partitions independently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from eventbus.errors import FormatError, NewerFormatError
from eventbus.ports import Reader, Record

_SLICE = 2000
_PATIENCE = 0.01
_KEY_SHOWN = 500

StatePartition: TypeAlias = tuple[str, int]
"""A topic, and the number of the partition in it."""


class _Reading(msgspec.Struct):
    state: StatePartition
    end: int | None = None
    """Where reading may stop; None while it waits for its turn."""
    unreadable: dict[bytes | None, FormatError] = msgspec.field(default_factory=dict)
    """What cannot be read, by key: only the latest record of a key counts."""


class StateReadings:
    """Which partitions of a stage's input still wait for their state, and how far each has come."""

    def __init__(self, reader: Reader, load: Callable[[int, Record], None]) -> None:
        self._reader = reader
        self._load = load
        self._readings: dict[int, _Reading] = {}

    def begin(self, partition: int, state: StatePartition) -> None:
        self._readings[partition] = _Reading(state)

    def advance(self) -> list[int]:
        """Read one slice. Returns the partitions whose state is complete; they stay so until they are ended.

        Several partitions may share a state partition: each reads it in its turn.
        Raises `FormatError` where something that still counts cannot be read.
        """
        turns = self._turns()
        for record in self._reader.read(_SLICE, _PATIENCE):
            self._take(turns[record.topic, record.partition], record)
        complete = [
            partition for state, partition in turns.items() if self._reader.position(*state) >= self._end(partition)
        ]
        for partition in complete:
            _refuse_unreadable(self._readings[partition])
        return complete

    def end(self, partition: int) -> None:
        """It needs no more of its state, or is not ours any more."""
        reading = self._readings.pop(partition, None)
        if reading is not None and reading.end is not None:
            self._reader.close(*reading.state)

    def close(self) -> None:
        self._reader.close()

    def _turns(self) -> Mapping[StatePartition, int]:
        turns: dict[StatePartition, int] = {}
        for partition, reading in self._readings.items():
            if reading.state not in turns:
                turns[reading.state] = partition
                if reading.end is None:
                    first, end = self._reader.offsets(*reading.state)
                    self._reader.open(*reading.state, first)
                    reading.end = end
        return turns

    def _end(self, partition: int) -> int:
        return self._readings[partition].end or 0

    def _take(self, partition: int, record: Record) -> None:
        unreadable = self._readings[partition].unreadable
        unreadable.pop(record.key, None)
        try:
            self._load(partition, record)
        except NewerFormatError:
            raise
        except FormatError as error:
            if record.value is not None:  # else it only removes what could not be read
                unreadable[record.key] = error


def _refuse_unreadable(reading: _Reading) -> None:
    for key, error in reading.unreadable.items():
        topic, partition = reading.state
        shown = (key or b"")[:_KEY_SHOWN]
        raise FormatError(
            f"{error}. Without it the sensor cannot know what it held. Write the record again as it was, or give it "
            f"up: write a record with the key {shown!r} and no value to partition {partition} of `{topic}`"
        )
