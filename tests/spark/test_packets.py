"""However events are cut into batches on their way, the same arrives in the same order. No Spark is needed for that."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from eventbus.events import Event
from eventbus.ports import Record
from sensors.spark.packets import PACKET, packing, unpacking
from sensors.spark.workers import ACTION, Deputy, arrow_schema
from tests.spark.rows import deputy, event_record, manifest

PARTITIONS = 3
EVENTS = 60
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SENSOR = {
    "pair": {"conditions": "a && b"},
    "other": {"conditions": "b && c"},
    "each": {"conditions": "a"},
}
KEYED = {**SENSOR, "keyed": {"conditions": "a && b", "correlate": {"by": "data.order"}, "within": "20s"}}


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    """A worker sets it to its own needs, and is alone in its process elsewhere."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def _events() -> list[list[Record]]:
    """By partition. A broker's clock goes back at times."""
    chance = random.Random(5)
    partitions = []
    for partition in range(PARTITIONS):
        records = []
        for offset in range(EVENTS):
            event = Event.new("shop", chance.choice("abc"), {"order": offset % 4}, id=f"{partition}-{offset}")
            timestamp = 1000 * offset + chance.randrange(-3000, 3000)
            records.append(event_record(event, offset, max(timestamp, 0), partition))
        partitions.append(records)
    return partitions


def _batch(records: Sequence[Record]) -> pa.RecordBatch:
    headers = [[{"key": name, "value": value} for name, value in record.headers] for record in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.partition for record in records], pa.int32()),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp for record in records], pa.int64()),
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array(headers, HEADERS),
        ],
        names=["partition", "offset", "timestamp", "key", "value", "headers"],
    )


def _firings(sensor: Deputy, size: int, *, by_slot: bool) -> list[dict[str, Any]]:
    """What comes of it in batches of this size, as Spark would move and sort them."""
    packets: list[dict[str, Any]] = []
    for records in _events():
        batches: Iterator[pa.RecordBatch] = (_batch(records[at : at + size]) for at in range(0, len(records), size))
        packets += (row for batch in packing(sensor, by_slot=by_slot)(batches) for row in batch.to_pylist())
    packets.sort(key=lambda row: [row[name] for name in ("place", "moment", "origin_partition", "origin_offset")])
    one_by_one = (pa.RecordBatch.from_pylist([row], schema=arrow_schema(PACKET)) for row in packets)
    outcomes = [row for batch in unpacking(sensor, clocks={})(one_by_one) for row in batch.to_pylist()]
    firings = [{**row, "offset": None} for row in outcomes if row["kind"] == ACTION]
    return sorted(
        firings, key=lambda row: (row["moment"], row["origin_partition"], row["origin_offset"], row["action"])
    )


@pytest.mark.parametrize(("triggers", "by_slot"), [(SENSOR, True), (SENSOR, False), (KEYED, False)])
def test_the_size_of_batches_makes_no_difference(triggers: dict[str, Any], by_slot: bool) -> None:
    sensor = deputy(manifest(triggers), events=PARTITIONS)
    at_once = _firings(sensor, EVENTS, by_slot=by_slot)
    assert {row["trigger"] for row in at_once} == set(triggers)
    assert _firings(sensor, 7, by_slot=by_slot) == at_once
    assert _firings(sensor, 1, by_slot=by_slot) == at_once
