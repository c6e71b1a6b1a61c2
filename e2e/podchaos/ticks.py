"""Whether every tick is on the bus, and once: the clock of this machine says which ones there must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from e2e.podchaos.resources import CLOCK, TICK_SECONDS
from eventbus.cloudevents import from_kafka
from eventbus.ports import Record


def ticks_of(events: Iterable[Record]) -> list[int]:
    """Seconds since 1970, in the order of the log."""
    told = [from_kafka(record.headers, record.value) for record in events]
    return [
        round(datetime.fromisoformat(event.json()["eventTime"]).timestamp()) for event in told if event.source == CLOCK
    ]


def tick_findings(ticks: list[int], least: int) -> Iterator[str]:
    counted = Counter(ticks)
    if len(counted) < least:
        yield f"the clock has ticked {len(counted)} times, and {least} are wanted"
    if not counted:
        return
    expected = set(range(min(counted), max(counted) + 1, TICK_SECONDS))
    yield from (f"the tick {tick} is lost" for tick in sorted(expected - counted.keys()))
    yield from (f"the tick {tick} is none" for tick in sorted(counted.keys() - expected))
    yield from (f"the tick {tick} was told {count} times" for tick, count in sorted(counted.items()) if count > 1)
