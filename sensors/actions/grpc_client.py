"""A client of argo-events' gRPC service `triggers.Trigger`. Its messages are described here, and made at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc

from sensors.actions.base import ActionError
from sensors.actions.grpc_channel import BOOL, BYTES, TEXT, credentials, message_classes, open_channel, serialized
from sensors.actions.replies import excerpt
from sensors.secrets import Secret

TIMEOUT_SECONDS = 60.0
"""For each of the three calls."""
PACKAGE = "triggers"
SERVICE = f"{PACKAGE}.Trigger"
MESSAGES = message_classes(
    PACKAGE,
    {
        "FetchResourceRequest": {"resource": BYTES},
        "FetchResourceResponse": {"resource": BYTES},
        "ExecuteRequest": {"resource": BYTES, "payload": BYTES},
        "ExecuteResponse": {"response": BYTES},
        "ApplyPolicyRequest": {"request": BYTES},
        "ApplyPolicyResponse": {"success": BOOL, "message": TEXT},
    },
)
_FINAL = frozenset(
    (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)


class TriggerClient:
    """Thread-safe. Keeps one connection to its server; to any other that an event chooses it makes one per call."""

    def __init__(self, address: str, secure: bool, authorities: Secret | None, server_name: str) -> None:
        self._address = address
        self._options = [("grpc.ssl_target_name_override", server_name)] if server_name else []
        self._credentials = credentials(secure, authorities)
        self._channel = self._new_channel(address)

    @contextmanager
    def server(self, address: str, metadata: Mapping[str, str]) -> Iterator[TriggerServer]:
        channel = self._channel if address == self._address else self._new_channel(address)
        try:
            yield TriggerServer(channel, metadata)
        finally:
            if channel is not self._channel:
                channel.close()

    def close(self) -> None:
        self._channel.close()

    def _new_channel(self, address: str) -> grpc.Channel:
        return open_channel(address, self._credentials, self._options)


class TriggerServer:
    """The server, for one action."""

    def __init__(self, channel: grpc.Channel, metadata: Mapping[str, str]) -> None:
        self._channel = channel
        self._metadata = tuple(metadata.items())

    def fetch(self, spec: bytes) -> bytes:
        """The resource that the spec describes."""
        resource: bytes = self._call("FetchResource", sent=False, resource=spec).resource
        return resource

    def execute(self, resource: bytes, payload: bytes) -> bytes:
        """Do it. Returns what the server says about it."""
        response: bytes = self._call("Execute", sent=True, resource=resource, payload=payload).response
        return response

    def apply_policy(self, response: bytes) -> None:
        """Raises `ActionError` unless the server calls this response a success."""
        verdict = self._call("ApplyPolicy", sent=True, request=response)
        if not verdict.success:
            said = excerpt(verdict.message)
            message = f"the server's policy does not call this a success{f': {said}' if said else ''}"
            raise ActionError(message, retriable=True, sent=True, status="policy")

    def _call(self, method: str, *, sent: bool, **fields: bytes) -> Any:
        """`sent`: whether this does something, if it gets there."""
        answer = MESSAGES[f"{method}Response"]
        invoke: Callable[..., Any] = self._channel.unary_unary(
            f"/{SERVICE}/{method}", request_serializer=serialized, response_deserializer=answer.FromString
        )
        try:
            return invoke(MESSAGES[f"{method}Request"](**fields), timeout=TIMEOUT_SECONDS, metadata=self._metadata)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            details = f"no answer within {TIMEOUT_SECONDS:g} s"
        raise ActionError(
            f"{method}: {code.name}: {excerpt(details or '')}",
            retriable=code not in _FINAL,
            sent=sent,
            status=code.name,
        )
