"""The event: CloudEvents attributes and the exact bytes of its data.

An `Event` never changes after it was made, and nothing is added to it that its sender did not say: no default
`time`, no guessed content type, no upgraded `specversion`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from eventbus.errors import InvalidEvent

Attribute: TypeAlias = str | int | bool

SPEC_VERSIONS = ("1.0", "0.3")
DEFAULT_TYPE = "dev.eventbus.event"
REPLAY_FOR, REPLAY_OF = "replayfor", "replayof"
"""Attributes of a replayed copy: the full name of the only sensor that it is for, and the place of the original."""
REQUIRED = ("specversion", "id", "source", "type")
_NAME = re.compile(r"[a-z0-9]+")
_RESOURCE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_JSON_TYPE = re.compile(r"(?i)[^;]*[/+]json\s*(;.*)?")


class Event(msgspec.Struct, frozen=True):
    """One CloudEvent. `attributes` holds every context attribute and extension, in the sender's order."""

    attributes: Mapping[str, Attribute]
    data: bytes | None = None

    @classmethod
    def new(
        cls,
        source: str,
        name: str,
        data: Any = None,
        *,
        type: str = DEFAULT_TYPE,
        id: str | None = None,
        **extensions: Attribute,
    ) -> Event:
        """Make an event as an event source does: `source` and `name` are what a sensor's dependency asks for.

        `bytes` data is taken as it is, anything else is written as JSON. An event without an `id` gets a random one.

        >>> event = Event.new("shop", "order", {"id": 17}, id="order-17", partitionkey="customer-3")
        >>> event.source, event.subject, event.data, event.key
        ('shop', 'order', b'{"id":17}', b'customer-3')
        """
        attributes: dict[str, Attribute] = {
            "specversion": "1.0",
            "id": id or uuid4().hex,
            "source": source,
            "type": type,
            "subject": name,
        }
        if data is not None and not isinstance(data, bytes):
            data = msgspec.json.encode(data)
            attributes["datacontenttype"] = "application/json"
        event = cls(attributes | extensions, data)
        event.check()
        return event

    def check(self) -> None:
        """Raise `InvalidEvent` with the first rule of the CloudEvents specification that this event breaks."""
        attributes = self.attributes
        for name in REQUIRED:
            value = attributes.get(name)
            if value is None:
                raise InvalidEvent(f"the required attribute `{name}` is missing")
            if not isinstance(value, str) or not value:
                raise InvalidEvent(f"the attribute `{name}` must be a non-empty string")
        if attributes["specversion"] not in SPEC_VERSIONS:
            raise InvalidEvent(f"specversion `{attributes['specversion']}` is not known; 1.0 and 0.3 are")
        for name, value in attributes.items():
            check_attribute_name(name)
            if isinstance(value, int) and not -(2**31) <= value < 2**31:
                raise InvalidEvent(f"the attribute `{name}` is outside the range of a CloudEvents integer")

    @property
    def id(self) -> str:
        return str(self.attributes["id"])

    @property
    def source(self) -> str:
        return str(self.attributes["source"])

    @property
    def type(self) -> str:
        return str(self.attributes["type"])

    @property
    def subject(self) -> str | None:
        subject = self.attributes.get("subject")
        return None if subject is None else str(subject)

    @property
    def has_json(self) -> bool:
        """Whether the data is declared as JSON; without a content type JSON is CloudEvents' default."""
        content_type = self.attributes.get("datacontenttype")
        return content_type in (None, "application/json") or _JSON_TYPE.fullmatch(str(content_type)) is not None

    def json(self) -> Any:
        """The data as Python objects; None where there is no data."""
        if self.data is None:
            return None
        try:
            return msgspec.json.decode(self.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidEvent(f"the data of event `{self.id}` is not JSON: {error}") from None

    @property
    def key(self) -> bytes | None:
        """What orders this event among others: the `partitionkey` extension, else the sender's own subject.

        Events from an event source (whose `source` is a plain resource name, as argo-events' are) carry the
        event's name as their subject. All events of one name would pile up in one partition, so it does not count.
        """
        key = self.attributes.get("partitionkey")
        if key is None and self.subject is not None and not _RESOURCE_NAME.fullmatch(self.source):
            key = self.subject
        return None if key is None else str(key).encode()


def check_attribute_name(name: str) -> None:
    """Raise `InvalidEvent` for a name that no attribute may have."""
    if name == "data":
        raise InvalidEvent("`data` is not an attribute name")
    if not _NAME.fullmatch(name):
        raise InvalidEvent(f"the attribute name `{name}` is not allowed: use lower-case letters and digits only")
