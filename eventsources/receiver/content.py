"""What is in a request: its headers and its body, as they go into the data of an event."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from eventsources.base import Refusal, Request

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1000
_CONFIDENTIAL = frozenset({"authorization", "proxy-authorization", "cookie", "x-gitlab-token"})
"""Headers that say who sent it. An event is no place for them."""
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def headers_of(request: Request) -> dict[str, list[str]]:
    """As Go spells them, and argo-events with it."""
    headers: dict[str, list[str]] = {}
    for name, value in request.headers:
        if name not in _CONFIDENTIAL:
            headers.setdefault("-".join(part.capitalize() for part in name.split("-")), []).append(value)
    return headers


def media_type_of(request: Request) -> str:
    return (request.header("content-type") or "").partition(";")[0].strip().lower()


def body_of(request: Request) -> Any:
    """JSON as it is, text as text, and bytes in base64, as `{"base64": …}`."""
    if not request.body:
        return None
    media_type = media_type_of(request)
    if media_type == "application/json" or media_type.endswith("+json"):
        return checked_json(request.body)
    try:
        text = request.body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(request.body).decode()}
    if not media_type:
        try:
            return checked_json(request.body)
        except Refusal:
            return text
    return text


def checked_json(body: bytes) -> msgspec.Raw:
    """Not written anew: numbers stay as they were written. Raises `Refusal`."""
    try:
        body.decode()
        return msgspec.Raw(_check_json(body))
    except UnicodeDecodeError:
        raise Refusal(400, "the body is not UTF-8, which JSON has to be") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None


def checked_object(body: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object, each as it was written. Raises `Refusal`."""
    try:
        return _decode_object(checked_json(body))
    except msgspec.ValidationError:
        raise Refusal(400, "the body is not a JSON object") from None


def form_of(request: Request) -> dict[str, str]:
    """Raises `Refusal`."""
    try:
        fields = parse_qsl(request.body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Refusal(400, "the body is not a form") from None
    return dict(reversed(fields))
