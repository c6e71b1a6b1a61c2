"""What is known at the end of a storm: everything on which the verdict is based."""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import TypeAlias

import msgspec

from eventbus.formats import action_fact, invocation
from eventbus.names import Stage
from eventbus.ports import Committed, Record
from eventbus.topics import Topology
from sensors.plan import SensorPlan

Fingerprint: TypeAlias = tuple[int, int, int]
"""Partition, offset, and a checksum of everything that was written there."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request that the sink received in full."""

    action: str
    trigger: str
    replica: str
    began_ms: int
    ended_ms: int
    status: int | None
    """None if it was never answered."""


class Mishap(msgspec.Struct, frozen=True):
    """Something that happened to a replica, and may explain a repeated or a missing invocation."""

    replica: str
    began_ms: int
    ended_ms: int
    name: str


class Evidence(msgspec.Struct):
    """Records are in log order within each partition."""

    plan: SensorPlan
    topology: Topology
    at_least_once: frozenset[str]
    events: list[Record]
    triggers: list[Record]
    actions: list[Record]
    invocations: list[Record]
    dead_letters: list[Record]
    concurrent: list[Fingerprint]
    """The action topic as somebody saw it who read it all the time."""
    calls: list[Call]
    mishaps: list[Mishap]
    commits: dict[Stage, dict[int, Committed | None]]


def keep(evidence: Evidence, directory: Path) -> None:
    """For whoever has to find out what happened: everything but the payloads."""
    for name, entries in (
        ("calls", evidence.calls),
        ("mishaps", sorted(evidence.mishaps, key=lambda mishap: mishap.began_ms)),
        ("actions", [(record.partition, record.offset, action_fact(record)) for record in evidence.actions]),
        ("invocations", [(record.partition, record.offset, invocation(record)) for record in evidence.invocations]),
    ):
        lines: list[object] = list(entries)
        (directory / f"{name}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))


def fingerprint(record: Record) -> Fingerprint:
    checksum = zlib.crc32(msgspec.json.encode((record.key, record.value, list(record.headers))))
    return record.partition, record.offset, checksum


def now_ms() -> int:
    return time.time_ns() // 1_000_000
