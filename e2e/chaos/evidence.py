"""What is kept of the records that were seen, and of everything where something was found."""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import TypeAlias

import msgspec

from eventbus.formats import action_fact, invocation
from eventbus.ports import Record
from sensors.audit.verdict import Evidence

Fingerprint: TypeAlias = tuple[int, int, int]
"""Partition, offset, and a checksum of everything that was written there."""


def keep(evidence: Evidence, directory: Path) -> None:
    """For whoever has to find out what happened: everything but the payloads."""
    for name, entries in (
        ("calls", evidence.calls),
        ("mishaps", sorted(evidence.mishaps, key=lambda mishap: mishap.began)),
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
