"""What an action sends: the payload its trigger describes, or the events themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from eventbus.cloudevents import to_json
from sensors.actions.base import ActionCall, ActionError
from sensors.parameters import Parameter, ParameterError, build_payload

JSON = "application/json"

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")


def body_of(call: ActionCall, payload: Sequence[Parameter] | None) -> bytes:
    """JSON. Without a payload: an object with one structured CloudEvent per dependency, or a list where it counts."""
    if payload is None:
        documents: dict[str, Any] = {name: msgspec.Raw(to_json(event)) for name, event in call.events.items()}
        for name, events in call.batches.items():
            documents[name] = [msgspec.Raw(to_json(event)) for event in events]
        return msgspec.json.encode(documents)
    try:
        return build_payload(payload, call.events)
    except ParameterError as error:
        raise ActionError(f"the payload cannot be made: {error}", retriable=False, sent=False) from None


def trace_of(call: ActionCall) -> dict[str, str]:
    """The call's W3C trace context. It came with an event, so only what has the standard's form is passed on."""
    if call.traceparent is None or not _TRACEPARENT.fullmatch(call.traceparent):
        return {}
    trace = {"traceparent": call.traceparent}
    if call.tracestate is not None and _TRACESTATE.fullmatch(call.tracestate):
        trace["tracestate"] = call.tracestate
    return trace
