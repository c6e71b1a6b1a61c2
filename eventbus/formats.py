"""The records on our own topics. These formats outlive releases: each carries a version, golden bytes pin them.

Every record keeps its facts in one `eb_…` header (compact JSON) and its payload in the value:

=========== ============================ ==================== =====================================================
topic       key                          header               value
=========== ============================ ==================== =====================================================
trigger     trigger NUL key              `eb_trigger`         the event as a structured CloudEvent (JSON)
trigger     trigger NUL key              `eb_flush`           none: what an operator wants
action      trigger NUL key              `eb_action`          a JSON array of the events of all dependencies
state       ["held",trigger,key,dep,n]   `eb_state`           the held event, as in the trigger topic
state       ["fired",trigger,key]        none                 JSON: when it fired
state       ["seen",trigger,key,value]   none                 JSON: when the event came that must not count again
state       ["identity"], ["origin",…]   none                 JSON
control     ["paused",trigger]           none                 JSON: since when; of all triggers where it is empty
invocation  action id                    none                 JSON
dead letter as in the original record    `eb_dlq` + original  the original value, byte for byte
=========== ============================ ==================== =====================================================

A reader of a record with a higher version than it knows raises `NewerFormatError`: it never guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from eventbus.errors import FormatError, NewerFormatError
from eventbus.ports import Headers, Record

VERSION = 1
TRIGGER_HEADER = "eb_trigger"
FLUSH_HEADER = "eb_flush"
ACTION_HEADER = "eb_action"
STATE_HEADER = "eb_state"
DLQ_HEADER = "eb_dlq"
REDRIVEN_HEADER = "eb_redriven"
"""On a record that came back from the dead letters: how often."""
REDRIVE_MARK_HEADER = "eb_redriven_mark"
"""On a record that says which dead letter was driven back."""
ACTION_TYPE = "dev.eventbus.action"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises, whatever the bytes are. Brackets in brackets in brackets are the last of them."""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What can be written again: a larger number can be read, but not encoded."""


class Source(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where an event stands in the event topic, and when it was appended there."""

    partition: Int64
    offset: Int64
    timestamp: Int64


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """W3C trace context."""

    parent: str
    state: str = ""


class OwnDocument(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The event as one dependency has transformed it."""

    dependency: str
    document: msgspec.Raw


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    version: int = msgspec.field(name="v")


class TriggerFact(Fact, frozen=True, gc=False):
    """One event on its way to one trigger."""

    trigger: str = msgspec.field(name="t")
    dependencies: tuple[str, ...] = msgspec.field(name="d")
    """All dependencies of the trigger that the event matched."""
    source: Source = msgspec.field(name="e")
    shape: str = msgspec.field(name="s")
    """Digest of the trigger's join shape when this was written."""
    replica: str = msgspec.field(name="r", default="")
    """Who wrote it: Kafka does not tell."""
    trace: Trace | None = msgspec.field(name="w", default=None)
    own: tuple[OwnDocument, ...] = msgspec.field(name="o", default=())
    """For dependencies that get another document than the one in the record's value."""
    key: str = msgspec.field(name="k", default="")
    """The correlation key; empty for a trigger that has none."""
    unique: str | None = msgspec.field(name="u", default=None)
    """What must not count twice, for a trigger that asks for it."""


class Flush(Fact, frozen=True, gc=False):
    """An operator wants a trigger to let go of what it holds for one correlation key, or to fire with it."""

    trigger: str = msgspec.field(name="t")
    fire: bool = msgspec.field(name="f")
    key: str = msgspec.field(name="k", default="")


class UsedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event of an action, in the order of the action's value."""

    dependencies: tuple[str, ...]
    source: Source


class Failure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why an action was given up."""

    action: str
    error: str
    attempts: int
    status: str | None = None


class ActionFact(Fact, frozen=True, gc=False):
    """An action that is to be invoked."""

    id: str
    trigger: str = msgspec.field(name="t")
    events: tuple[UsedEvent, ...] = msgspec.field(name="e")
    generation: int = msgspec.field(name="g")
    key: str = msgspec.field(name="k", default="")
    joined: tuple[int, int] | None = msgspec.field(name="j", default=None)
    """Partition and offset of the completing record in the trigger topic; None where one event was enough."""
    counted: tuple[str, ...] = msgspec.field(name="n", default=())
    """Dependencies that need several events: the action gets a list of them."""
    replica: str = msgspec.field(name="r", default="")
    """Who wrote it: Kafka does not tell."""
    trace: Trace | None = msgspec.field(name="w", default=None)
    failure: Failure | None = msgspec.field(name="f", default=None)
    """Of which action this is the `dlqTrigger`'s, and why."""


class Invocation(Fact, frozen=True, gc=False):
    """One step in the life of an action. The audit reads these."""

    action: str
    sensor: str
    trigger: str
    attempt: int
    outcome: str
    """What happened:

    `taken` (at most once: it may be invoked now), `released` (it was not, and another replica may take it), `lost` (it
    was begun, and nobody will see how it ended), `succeeded`, `failed` (it will be tried again) or `dead-lettered`.
    """
    mode: str
    partition: int
    offset: int
    replica: str
    started: int
    ended: int
    status: str | None = None
    error: str | None = None


class DeadLetter(Fact, frozen=True, gc=False):
    """Why a record is in the dead-letter topic, and where it came from."""

    reason: str
    detail: str
    stage: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    replica: str
    trigger: str | None = None
    action: str | None = None
    attempts: int | None = None
    truncated: int | None = None
    """The value's full length, where the dead letter holds only its beginning."""
    generation: int | None = None
    """Of the spec by which an action was given up: it says whether another action is due because of that."""
    source: str | None = None
    """The event source and its event, where it was never on the bus."""


F = TypeVar("F", bound=Fact)

_encode = msgspec.json.Encoder().encode
_trigger_decoder = msgspec.json.Decoder(TriggerFact)
_flush_decoder = msgspec.json.Decoder(Flush)
_action_decoder = msgspec.json.Decoder(ActionFact)
_dead_letter_decoder = msgspec.json.Decoder(DeadLetter)
_invocation_decoder = msgspec.json.Decoder(Invocation)


def encode_fact(fact: Fact) -> bytes:
    return _encode(fact)


def trigger_fact(record: Record) -> TriggerFact:
    return from_header(record, TRIGGER_HEADER, _trigger_decoder)


def flush(record: Record) -> Flush:
    return from_header(record, FLUSH_HEADER, _flush_decoder)


def action_fact(record: Record) -> ActionFact:
    return from_header(record, ACTION_HEADER, _action_decoder)


def dead_letter(record: Record) -> DeadLetter:
    return from_header(record, DLQ_HEADER, _dead_letter_decoder)


def invocation(record: Record) -> Invocation:
    return decoded(record, record.value or b"", _invocation_decoder)


def encodable(text: str) -> str:
    """What somebody else has said, as text that can be written: half a surrogate pair cannot."""
    return text.encode("utf-8", "replace").decode()


def join_documents(documents: Sequence[bytes]) -> bytes:
    """A JSON array of documents that are JSON already: nothing is parsed or written again."""
    return b"[" + b",".join(documents) + b"]"


def header(headers: Headers, name: str) -> bytes | None:
    """The first header of that name."""
    for key, value in headers:
        if key == name:
            return value
    return None


def is_redrive_mark(record: Record) -> bool:
    """Of a record among the dead letters. Those have the headers of what they were, whatever these are called."""
    return header(record.headers, REDRIVE_MARK_HEADER) is not None and header(record.headers, DLQ_HEADER) is None


def from_header(record: Record, name: str, decoder: msgspec.json.Decoder[F]) -> F:
    raw = header(record.headers, name)
    if raw is None:
        raise FormatError(f"{where(record)}: the header `{name}` is missing")
    return decoded(record, raw, decoder)


def decoded(record: Record, raw: bytes, decoder: msgspec.json.Decoder[F]) -> F:
    try:
        fact = decoder.decode(raw)
    except UNREADABLE as error:
        _refuse_newer_version(record, raw)
        raise FormatError(f"{where(record)}: not one of our records: {error}") from None
    if fact.version != VERSION:
        _refuse_newer_version(record, raw)
    return fact


def _refuse_newer_version(record: Record, raw: bytes) -> None:
    class Versioned(msgspec.Struct):
        v: int

    try:
        version = msgspec.json.decode(raw, type=Versioned).v
    except UNREADABLE:
        return
    if version != VERSION:
        raise NewerFormatError(
            f"{where(record)}: written in format version {version}, and this program knows version {VERSION}: "
            "run the release that wrote it, or a newer one"
        )


def where(record: Record) -> str:
    return f"{record.topic}[{record.partition}]@{record.offset}"
