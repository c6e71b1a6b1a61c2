"""The stable hashes: partitions, join shapes, action ids.

Their outputs are part of the format of stored data. They are pinned by golden values in `tests/golden`; changing one
needs a migration. CRC-32 spreads keys over partitions well enough and costs a tenth of a cryptographic hash; digests
and ids, which must not collide, are BLAKE2b. Both are the same in every language.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias
from zlib import crc32

import msgspec

_SEPARATOR = b"\0"
_encode = msgspec.json.Encoder().encode


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, among `partitions`: what librdkafka calls its `consistent` partitioner."""
    return crc32(key) % partitions


def slot_key(trigger: str, key: bytes) -> bytes:
    """The record key of everything that concerns one trigger and one correlation (or event) key."""
    return trigger.encode() + _SEPARATOR + key


def trigger_and_key(slot: bytes) -> tuple[str, str]:
    """What such a record key says."""
    trigger, _, key = slot.partition(_SEPARATOR)
    return trigger.decode("utf-8", "replace"), key.decode("utf-8", "replace")


def short_digest(*parts: str, length: int) -> str:
    """A digest of `length` URL-safe characters (6 bits each) over parts that cannot run into each other."""
    size = (length * 6 + 7) // 8
    return urlsafe_b64encode(blake2b(_encode(parts), digest_size=size).digest()).decode()[:length]


Reference: TypeAlias = tuple[str, int, int, str, str]
"""An event: topic, partition, offset, CloudEvents source and id."""


def action_id(sensor: str, trigger: str, events: Sequence[Reference]) -> str:
    """The id of the action that these events cause: the same whoever computes it, however often.

    `sensor` is its full name (namespace, bus, sensor). What is hashed is the compact JSON of [sensor, trigger, events].
    """
    return blake2b(_encode((sensor, trigger, events)), digest_size=16).hexdigest()


def dlq_action_id(action: str) -> str:
    """The id of the action that is due because this one was given up."""
    return blake2b(_encode(("dlq", action)), digest_size=16).hexdigest()
