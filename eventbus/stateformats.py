"""What a sensor remembers: the records of its state topic and its control topic. `formats` has the overview."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec

from eventbus.errors import FormatError
from eventbus.formats import STATE_HEADER, UNREADABLE, Fact, Int64, Source, Trace, decoded, from_header, where
from eventbus.ports import Record


class StateFact(Fact, frozen=True, gc=False):
    """An event that a trigger holds in the state topic. The key says which trigger and dependency."""

    shape: str = msgspec.field(name="s")
    source: Source = msgspec.field(name="e")
    trace: Trace | None = msgspec.field(name="w", default=None)
    arrived: tuple[Int64, Int64] | None = msgspec.field(name="a", default=None)
    """The partition's clock when it came, and its offset in the trigger topic. None: it was spilled from there."""


class HeldKey(msgspec.Struct, frozen=True, array_like=True, tag="held"):
    """Key of a held event: `n` tells several events of one dependency apart."""

    trigger: str
    key: str
    dependency: str
    n: int = 0


class FiredKey(msgspec.Struct, frozen=True, array_like=True, tag="fired"):
    """Key of the memory of a slot's firings."""

    trigger: str
    key: str


class SeenKey(msgspec.Struct, frozen=True, array_like=True, tag="seen"):
    """Key of the memory that an event came, so that it does not count again."""

    trigger: str
    key: str
    unique: str


class IdentityKey(msgspec.Struct, frozen=True, array_like=True, tag="identity"):
    """Key of a state partition's identity."""


class PausedKey(msgspec.Struct, frozen=True, array_like=True, tag="paused"):
    """Key of an operator's wish that a trigger does nothing for now; empty for all triggers."""

    trigger: str


class OriginKey(msgspec.Struct, frozen=True, array_like=True, tag="origin"):
    """Key of the note that a stage has begun to read a partition of its input.

    Where a generation of the spec goes on with what another has begun, `stage` has its number behind a slash.
    """

    stage: str
    partition: int


StateKey: TypeAlias = HeldKey | FiredKey | SeenKey | IdentityKey | OriginKey


class Firing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a slot fired: the newest of its events, and the partition's clock."""

    timestamp: Int64
    clock: Int64


class Fired(Fact, frozen=True, gc=False):
    """The firings of a slot that still forbid others."""

    shape: str = msgspec.field(name="s")
    firings: tuple[Firing, ...] = msgspec.field(name="f")


class Paused(Fact, frozen=True, gc=False):
    """Since when a trigger is paused."""

    at: Int64


class Seen(Fact, frozen=True, gc=False):
    """An event came that must not count again."""

    shape: str = msgspec.field(name="s")
    clock: Int64 = msgspec.field(name="c")


class Identity(Fact, frozen=True, gc=False):
    """Whose state this is. Written with the first commit, and again when a newer generation takes over."""

    namespace: str
    bus: str
    sensor: str
    event_partitions: int
    trigger_partitions: int
    action_partitions: int
    generation: int
    digest: str


class Origin(Fact, frozen=True, gc=False):
    """Where a stage began to read one partition, and under which generation of the spec (None: it was not noted)."""

    offset: int
    generation: int | None = msgspec.field(name="g", default=None)


K = TypeVar("K")

_encode = msgspec.json.Encoder().encode
_key_decoder: msgspec.json.Decoder[StateKey] = msgspec.json.Decoder(StateKey)
_state_decoder = msgspec.json.Decoder(StateFact)
_identity_decoder = msgspec.json.Decoder(Identity)
_origin_decoder = msgspec.json.Decoder(Origin)
_fired_decoder = msgspec.json.Decoder(Fired)
_paused_decoder = msgspec.json.Decoder(Paused)
_paused_key_decoder = msgspec.json.Decoder(PausedKey)
_seen_decoder = msgspec.json.Decoder(Seen)


def encode_state_key(key: StateKey | PausedKey) -> bytes:
    return _encode(key)


def decode_state_key(record: Record) -> StateKey:
    return _key_of(record, _key_decoder)


def state_fact(record: Record) -> StateFact:
    return from_header(record, STATE_HEADER, _state_decoder)


def identity(record: Record) -> Identity:
    return decoded(record, record.value or b"", _identity_decoder)


def origin(record: Record) -> Origin:
    return decoded(record, record.value or b"", _origin_decoder)


def fired(record: Record) -> Fired:
    return decoded(record, record.value or b"", _fired_decoder)


def seen(record: Record) -> Seen:
    return decoded(record, record.value or b"", _seen_decoder)


def paused(record: Record) -> tuple[str, Paused | None]:
    """A record of the control topic: which trigger, and since when it is paused, if it is."""
    key = _key_of(record, _paused_key_decoder)
    if record.value is None:
        return key.trigger, None
    return key.trigger, decoded(record, record.value, _paused_decoder)


def _key_of(record: Record, decoder: msgspec.json.Decoder[K]) -> K:
    try:
        return decoder.decode(record.key or b"")
    except UNREADABLE as error:
        raise FormatError(f"{where(record)}: the key is not one of ours: {error}") from None
