"""CloudEvents in HTTP requests: the binary, the structured and the batched mode of the HTTP binding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from eventbus.cloudevents import STRUCTURED_JSON, from_json, from_json_batch
from eventbus.errors import InvalidEvent
from eventbus.events import Attribute, Event, check_attribute_name
from eventsources.base import Refusal, Request

_PREFIX = "ce-"
_STRUCTURED = "application/cloudevents"
_BATCH = "application/cloudevents-batch"
_BATCH_JSON = "application/cloudevents-batch+json"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_CHARSET = re.compile(r"(?i);\s*charset\s*=\s*\"?([\w.:-]+)\"?")
_UTF8 = ("utf-8", "utf8", "us-ascii")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Control characters: an attribute may end up in a header or in a line of a log."""


def has_cloud_events(request: Request) -> bool:
    """Whether a request says that it carries CloudEvents, well-formed or not."""
    content_type = request.header("content-type") or ""
    if content_type.lower().startswith(_STRUCTURED) or request.header("ce-specversion") is not None:
        return True
    return all(request.header(f"ce-{name}") is not None for name in ("id", "source", "type"))


def cloud_events(request: Request) -> Sequence[Event]:
    """The events in such a request; of a batch that has a bad one, none. Raises `Refusal`."""
    try:
        events = _parsed(request)
        for event in events:
            _check_characters(event)
    except InvalidEvent as error:
        raise Refusal(400, str(error)) from None
    return events


def _parsed(request: Request) -> Sequence[Event]:
    content_type = request.header("content-type") or ""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.startswith(_BATCH):
        _check_format(media_type, content_type, _BATCH_JSON)
        return _batch(request.body)
    if media_type.startswith(_STRUCTURED):
        _check_format(media_type, content_type, STRUCTURED_JSON)
        return [from_json(request.body)]
    return [_binary(request)]


def _check_format(media_type: str, content_type: str, known: str) -> None:
    if media_type != known:
        raise Refusal(415, f"the event format `{media_type}` is not supported; use {known}")
    charset = _CHARSET.search(content_type)
    if charset is not None and charset[1].lower() not in _UTF8:
        raise Refusal(415, f"the charset `{charset[1]}` is not supported; use utf-8")


def _batch(body: bytes) -> Sequence[Event]:
    events = from_json_batch(body)
    if len({event.attributes["specversion"] for event in events}) > 1:
        raise InvalidEvent("the events of a batch must all have the same `specversion`")
    return events


def _check_characters(event: Event) -> None:
    for name, value in event.attributes.items():
        if isinstance(value, str) and _FORBIDDEN.search(value):
            raise InvalidEvent(f"the attribute `{name}` has control characters, which CloudEvents does not allow")


def _binary(request: Request) -> Event:
    attributes: dict[str, Attribute] = {}
    for header, value in request.headers:
        if not header.startswith(_PREFIX):
            continue
        name = header.removeprefix(_PREFIX)
        if name == "datacontenttype":
            continue  # Content-Type has the say
        check_attribute_name(name)
        if name in attributes:
            raise InvalidEvent(f"the header `{header}` is there twice")
        attributes[name] = _decoded(header, value)
    content_type = request.header("content-type")
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    event = Event(attributes, request.body or None)
    event.check()
    return event


def _decoded(header: str, value: str) -> str:
    """Quotes go first, then what is percent-encoded."""
    quoted = _QUOTED.fullmatch(value.strip())
    text = _ESCAPED.sub(r"\1", quoted[1]) if quoted else value.strip()
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise InvalidEvent(f"the header `{header}` is not UTF-8 when it is decoded") from None
