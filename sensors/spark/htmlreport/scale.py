"""Lengths of time on a logarithmic scale, and what a histogram tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import log10
from statistics import median

import msgspec

from eventbus.moments import span
from sensors.spark.report import AuditReport, Bucket, Latency

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_TICKS = (
    *(0, 1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE),
    *(_HOUR, 10 * _HOUR, 4 * _DAY, 40 * _DAY, 400 * _DAY, 4000 * _DAY),
)
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def exponent(milliseconds: float) -> float:
    """Nothing at all has a place, too."""
    return log10(max(milliseconds, 0) + 1)


class Axis(msgspec.Struct, frozen=True):
    """From one length of time to another."""

    low: int
    high: int

    @classmethod
    def around(cls, lengths: Sequence[int]) -> Axis:
        shortest, longest = min(lengths, default=0), max(lengths, default=0)
        low = max((tick for tick in _TICKS if tick <= shortest), default=0)
        return cls(low, max(longest, low * 10, 10))

    def place(self, milliseconds: float) -> float:
        """As a fraction of the width."""
        low, high = exponent(self.low), exponent(self.high)
        return min(max((exponent(milliseconds) - low) / (high - low), 0), 1)

    def ticks(self) -> Iterator[tuple[float, str]]:
        yield from ((self.place(tick), _round(tick)) for tick in _TICKS if self.low <= tick <= self.high)


def _round(tick: int) -> str:
    return f"{tick // _DAY} d" if tick >= _DAY else f"{tick // _HOUR} h" if tick >= _HOUR else span(tick)


class Bin(msgspec.Struct, frozen=True):
    """A bucket with both of its ends."""

    low: float
    high: float
    count: int


class StageLatency(msgspec.Struct, frozen=True):
    """One stage: all of its actions together, and trigger by trigger."""

    stage: str
    bins: list[Bin]
    latencies: list[Latency]

    @property
    def count(self) -> int:
        return sum(each.count for each in self.bins) or sum(latency.count for latency in self.latencies)

    def lengths(self) -> Iterator[int]:
        yield from (int(end) for each in self.bins for end in (each.low, each.high))
        yield from (length for latency in self.latencies for length in (latency.p50, latency.longest))

    def marks(self) -> dict[str, tuple[float, str]]:
        """Where p50, p90 and p99 are, and how they are written: measured, or else guessed from the histogram."""
        if len(self.latencies) == 1:
            only = self.latencies[0]
            exact = {"p50": only.p50, "p90": only.p90, "p99": only.p99}
            return {name: (length, span(length)) for name, length in exact.items()}
        guesses = {name: _quantile(self.bins, share) for name, share in SHARES.items()} if self.bins else {}
        return {name: (guess, f"≈ {span(round(guess))}") for name, guess in guesses.items()}


def stages(report: AuditReport) -> list[StageLatency]:
    """Every stage that something is known of, in the order in which they are told."""
    names = dict.fromkeys([*(each.stage for each in report.latencies), *(each.stage for each in report.histogram)])
    bounds = sorted({bucket.up_to for bucket in report.histogram})
    result = []
    for name in names:
        latencies = sorted(
            (each for each in report.latencies if each.stage == name), key=lambda each: (-each.p99, each.trigger)
        )
        longest = max((latency.longest for latency in latencies), default=None)
        buckets = (bucket for bucket in report.histogram if bucket.stage == name and bucket.count)
        result.append(StageLatency(name, list(_bins(buckets, bounds, longest)), latencies))
    return result


def _bins(buckets: Iterable[Bucket], bounds: Sequence[int], longest: int | None) -> Iterator[Bin]:
    """Empty buckets may have been left out: a bar is never much wider than bars usually are."""
    steps = [exponent(right) - exponent(left) for left, right in pairwise(bounds)]
    usual = 1.3 * median(steps) if steps else 0.3
    below = dict(pairwise([0, *bounds]) if bounds and bounds[0] > 0 else pairwise(bounds))
    lower = {high: low for low, high in below.items()}
    for bucket in sorted(buckets, key=lambda each: each.up_to):
        low = max(lower.get(bucket.up_to, 0), 10 ** max(exponent(bucket.up_to) - usual, 0) - 1)
        high = bucket.up_to if longest is None else min(bucket.up_to, max(longest, low + 1))
        yield Bin(low, max(high, low), bucket.count)


def _quantile(bins: Sequence[Bin], share: float) -> float:
    wanted = share * sum(each.count for each in bins)
    for each in bins:
        if wanted <= each.count:
            low, high = exponent(each.low), exponent(each.high)
            return float(10 ** (low + (high - low) * wanted / each.count) - 1)
        wanted -= each.count
    return bins[-1].high
