"""The stable hashes: partitions, join shapes, action ids.

Their outputs are part of the format of stored data. They are pinned by golden values in `tests/golden`; changing one
needs a migration. BLAKE2b is used because it is fast, well spread and the same in every language.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import blake2b

_SEPARATOR = b"\0"


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, among `partitions`."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") % partitions


def slot_key(trigger: str, key: bytes) -> bytes:
    """The record key of everything that concerns one trigger and one correlation (or event) key."""
    return trigger.encode() + _SEPARATOR + key


def short_digest(*parts: str, length: int) -> str:
    """A digest of `length` URL-safe characters (6 bits each) over parts that cannot run into each other."""
    size = (length * 6 + 7) // 8
    return urlsafe_b64encode(_digest(parts, size)).decode()[:length]


def action_id(sensor: str, trigger: str, events: Iterable[tuple[str, int, int, str, str]]) -> str:
    """The id of the action that these events cause: the same whoever computes it, however often.

    `sensor` is its full name (namespace, bus, sensor); each event is (topic, partition, offset, source, id).
    """
    parts = [sensor, trigger]
    for topic, partition, offset, source, event_id in events:
        parts += [topic, str(partition), str(offset), source, event_id]
    return _digest(parts, 16).hex()


def _digest(parts: Iterable[str], size: int) -> bytes:
    hasher = blake2b(digest_size=size)
    for part in parts:
        data = part.encode()
        hasher.update(len(data).to_bytes(4, "big"))
        hasher.update(data)
    return hasher.digest()
