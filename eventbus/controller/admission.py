"""The validating webhook: refuses what the command line would refuse, in the same words.

An ASGI application. It decides by the resource alone, and asks nobody: so it answers at once, and always the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from eventbus.controller.reconcile import BUSES, checked
from eventsources.receiver.app import Receive, Scope, Send
from sensors.spec.problems import ManifestError

MOST_BYTES = 8 << 20
"""Kubernetes sends the old and the new object, each 1.5 MiB at the most."""


async def admission(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http" or scope["method"] != "POST":
        await _answer(send, 405, {"message": "send an AdmissionReview"})
        return
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False) and len(body) <= MOST_BYTES
    try:
        review = msgspec.json.decode(bytes(body))
        answer = reviewed(review["request"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        await _answer(send, 400, {"message": "this is not an AdmissionReview"})
        return
    await _answer(send, 200, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})


def reviewed(request: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a resource may be as it is to be, and why not."""
    resource = request.get("object")
    if request.get("operation") not in ("CREATE", "UPDATE") or not isinstance(resource, Mapping):
        return {"uid": request["uid"], "allowed": True}
    if (resource.get("metadata") or {}).get("deletionTimestamp"):  # its end must not wait for its being right
        return {"uid": request["uid"], "allowed": True}
    try:
        manifest = BUSES.make(resource) if resource.get("kind") == "EventBus" else checked(resource)
    except ManifestError as error:
        return {"uid": request["uid"], "allowed": False, "status": {"code": 422, "message": str(error)}}
    return {"uid": request["uid"], "allowed": True, "warnings": [str(each)[:250] for each in manifest.warnings]}


async def _answer(send: Send, status: int, document: Mapping[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(document)})
