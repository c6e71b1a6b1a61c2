"""CloudEvents on Kafka and in JSON: strict when reading, exact when writing.

Three representations, and nothing is lost between them:

- *Kafka binary mode*: attributes in `ce_` headers, data as the record's value (a null value means no data).
- *Kafka structured mode*: one JSON document as the value, recognised by `content-type: application/cloudevents+json`.
- *stored JSON*: what our own topics hold. It is the structured document again; the data's bytes come back unchanged.

The SDK of CloudEvents is not used here because it invents missing attributes and re-serialises data.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.events import SPEC_VERSIONS, Attribute, Event, check_attribute_name
from eventbus.ports import Headers

CONTENT_TYPE = "content-type"
STRUCTURED = "application/cloudevents"
STRUCTURED_JSON = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch"
_PREFIX = "ce_"
_REMEMBERED_NAMES = 1000
_PLAIN_TYPES = (None, "application/json")
_FOREIGN = ""
"""Stands for the attribute in a header that is not CloudEvents'."""

_encode = msgspec.json.Encoder().encode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_attribute = msgspec.json.Decoder(Attribute | None).decode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


# --- Kafka ----------------------------------------------------------------------------------------------------------


def from_kafka(headers: Headers, value: bytes | None) -> Event:
    """The event that a Kafka record carries, in either mode. Raises `InvalidEvent`."""
    names = _attribute_names
    pairs: Sequence[tuple[str, Any]] = headers
    try:
        attributes: dict[str, Attribute] = {names[header]: raw.decode() for header, raw in pairs}
    except (KeyError, AttributeError, UnicodeDecodeError):
        attributes = _attributes_one_by_one(headers)
    attributes.pop(_FOREIGN, None)
    get = attributes.get
    content_type = get("datacontenttype")
    if content_type not in _PLAIN_TYPES and _is_structured(str(content_type)):
        return _from_structured(str(content_type), value)
    event = Event(attributes, value)
    if not (get("specversion") in SPEC_VERSIONS and get("id") and get("source") and get("type")):
        event.check()  # all are strings with valid names: only what is required can be wrong
    return event


def to_kafka(event: Event) -> tuple[list[tuple[str, bytes]], bytes | None]:
    """Headers and value of an event in binary mode."""
    headers = []
    for name, value in event.attributes.items():
        header = CONTENT_TYPE if name == "datacontenttype" else _PREFIX + name
        headers.append((header, attribute_text(value).encode()))
    return headers, event.data


def _from_structured(content_type: str, value: bytes | None) -> Event:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.startswith(_BATCH):
        raise InvalidEvent("a batch of CloudEvents is not allowed in one Kafka record")
    if media_type != STRUCTURED_JSON:
        raise InvalidEvent(f"the event format `{media_type}` is not supported; use {STRUCTURED_JSON}")
    if value is None:
        raise InvalidEvent("a structured CloudEvent without a body")
    return from_json(value)


def _is_structured(content_type: str) -> bool:
    return content_type[: len(STRUCTURED)].lower() == STRUCTURED


def _attributes_one_by_one(headers: Headers) -> dict[str, Attribute]:
    """For records that cannot be decoded in one go: find the header to blame, if it is one that matters."""
    attributes: dict[str, Attribute] = {}
    for header, raw in headers:
        name = _attribute_name(header)
        if name == _FOREIGN:
            continue
        if raw is None:
            raise InvalidEvent(f"the header `{header}` has no value")
        try:
            attributes[name] = raw.decode()
        except UnicodeDecodeError:
            raise InvalidEvent(f"the header `{header}` is not UTF-8") from None
    return attributes


_attribute_names: dict[str, str] = {}
"""Header → attribute. Senders use few header names; what one means is found out once."""


def _attribute_name(header: str) -> str:
    if header.lower() == CONTENT_TYPE:
        name = "datacontenttype"
    elif header.startswith(_PREFIX):
        name = header.removeprefix(_PREFIX)
        check_attribute_name(name)
    else:
        name = _FOREIGN
    if len(_attribute_names) < _REMEMBERED_NAMES:
        _attribute_names[header] = name
    return name


# --- JSON -----------------------------------------------------------------------------------------------------------


def to_json(event: Event) -> bytes:
    """One structured JSON document. JSON data is embedded byte for byte; the rest as text or base64."""
    attributes, data = event.attributes, event.data
    if data is None:
        return _encode(attributes)
    if attributes.get("datacontentencoding") == "base64":
        return _encode({**attributes, "data": b64encode(data).decode()})
    if event.has_json:
        if _is_json(data):
            return _encode({**attributes, "data": msgspec.Raw(data)})
    else:
        with suppress(UnicodeDecodeError):
            return _encode({**attributes, "data": data.decode()})
    return _encode({**attributes, "data_base64": b64encode(data).decode()})


def from_json(document: bytes | msgspec.Raw) -> Event:
    """The event in one structured JSON document. Raises `InvalidEvent`."""
    members = _members(document)
    raw_data = members.pop("data", None)
    raw_base64 = members.pop("data_base64", None)
    attributes: dict[str, Attribute] = {}
    for name, raw in members.items():
        try:
            value = _decode_attribute(raw)
        except UnicodeDecodeError:
            raise InvalidEvent(f"the attribute `{name}` is not UTF-8") from None
        except msgspec.DecodeError:
            raise InvalidEvent(f"the attribute `{name}` must be a string, an integer or a boolean") from None
        if value is not None:  # null is the same as absent
            attributes[name] = value
    event = Event(attributes)
    event.check()
    if raw_base64 is not None:
        if raw_data is not None:
            raise InvalidEvent("`data` and `data_base64` exclude each other")
        return Event(attributes, _base64(raw_base64, "data_base64"))
    if raw_data is None:
        return event
    if attributes.get("datacontentencoding") == "base64":
        return Event(attributes, _base64(raw_data, "data"))
    data = bytes(raw_data)
    if data[:1] == b'"' and not event.has_json:
        data = _text_data(data)
    return Event(attributes, data)


def _text_data(document: bytes) -> bytes:
    """Data that is no JSON but was written as a JSON string."""
    try:
        return msgspec.json.decode(document, type=str).encode()
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidEvent("`data` is not a valid JSON string") from None


def from_json_batch(document: bytes) -> list[Event]:
    """The events of a JSON array of structured documents."""
    try:
        items = msgspec.json.decode(document, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(f"not a JSON array of CloudEvents: {error}") from None
    return [from_json(item) for item in items]


def _members(document: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _decode_members(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(f"not a JSON object: {error}") from None


def _is_json(data: bytes) -> bool:
    try:
        _check_json(data)
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    # Surrounding white space would not survive inside the document.
    return not (data[:1].isspace() or data[-1:].isspace())


def _base64(raw: msgspec.Raw, member: str) -> bytes:
    try:
        return b64decode(msgspec.json.decode(raw, type=str), validate=True)
    except (msgspec.DecodeError, Base64Error, ValueError):  # which includes text that is not UTF-8
        raise InvalidEvent(f"`{member}` is not base64") from None


def attribute_text(value: Attribute) -> str:
    """CloudEvents' canonical string of an attribute."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
