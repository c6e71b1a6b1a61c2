"""A stream of argo-events' gRPC service `generic.Eventing`, taken in portions by somebody who may take a while.

It is read in a thread of its own, and not much further than to what can be taken: then it is the server that has to
wait, by HTTP/2's flow control.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Condition, Thread
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from eventsources.base import SourceError, Stop
from sensors.actions.grpc_channel import BYTES, TEXT, credentials, message_classes, open_channel, serialized
from sensors.actions.replies import excerpt
from sensors.secrets import Secret

SERVICE = "generic.Eventing"
METHOD = "StartEventSource"
MESSAGES = message_classes(
    "generic", {"EventSource": {"name": TEXT, "config": BYTES}, "Event": {"name": TEXT, "payload": BYTES}}
)
MOST_WAITING = 100
MOST_BYTES = 4 << 20
"""How much of it waits to be taken."""
MOST_MESSAGE_BYTES = 16 << 20
"""More than the log takes: one that is too large for that is told of, and those behind it come all the same."""
SILENT_SECONDS = 330.0
"""When to ask a server that says nothing whether it is there. Many hang up on who asks more often than in 5 minutes."""
ANSWER_SECONDS = 20.0
_WAIT_SECONDS = 0.5
"""How long to wait for messages before looking whether to stop."""


class EventStream:
    """One call, from its beginning to its end."""

    def __init__(
        self, address: str, name: str, config: str, *, secure: bool, authorities: Secret | None, token: Secret
    ) -> None:
        self._address, self._token = address, token
        metadata = [("authorization", f"Bearer {_sendable(token)}")] if token.reveal() else []
        self._channel = open_channel(address, credentials(secure, authorities), _options())
        start: Any = self._channel.unary_stream(f"/{SERVICE}/{METHOD}", request_serializer=serialized)
        request = MESSAGES["EventSource"](name=name, config=config.encode())
        self._call: Any = start(request, metadata=metadata)
        self._inbox = _Inbox()
        self._thread = Thread(target=self._read, name=f"stream-{name}", daemon=True)
        self._thread.start()

    def portions(self, stop: Stop) -> Iterator[list[bytes]]:
        """Messages, until `stop` is set; then those that are here already.

        Raises `SourceError` when the stream ends before that.
        """
        while True:
            if stop.is_set():
                self._call.cancel()
            messages = self._inbox.take(_WAIT_SECONDS)
            if messages:
                yield messages
            elif self._inbox.ended:
                break
        if not stop.is_set():
            raise SourceError(f"the gRPC server {self._address}: {self._end()}")

    def close(self) -> None:
        self._inbox.end()
        self._call.cancel()
        self._thread.join()
        self._channel.close()

    def _read(self) -> None:
        try:
            for message in self._call:
                self._inbox.put(message)
        except grpc.RpcError:
            pass  # the call itself knows why it has ended
        finally:
            self._inbox.end()

    def _end(self) -> str:
        code = self._call.code()
        if code is grpc.StatusCode.OK:
            return "the stream has ended"
        return f"{code.name}: {excerpt(self._call.details() or '', [self._token])}"


class _Inbox:
    """What has come in and is not taken yet. Whoever has more has to wait."""

    def __init__(self) -> None:
        self.ended = False
        self._messages: list[bytes] = []
        self._bytes = 0
        self._changed = Condition()

    def put(self, message: bytes) -> None:
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._messages.append(message)
            self._bytes += len(message)
            self._changed.notify_all()

    def take(self, seconds: float) -> list[bytes]:
        """All that is there, after a while at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self.ended, seconds)
            taken, self._messages, self._bytes = self._messages, [], 0
            self._changed.notify_all()
            return taken

    def end(self) -> None:
        """Nothing more comes, or is wanted."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self.ended or (len(self._messages) < MOST_WAITING and self._bytes < MOST_BYTES)


def _options() -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
        ("grpc.http2.bdp_probe", 0),  # no further ahead than 64 KiB: what was read ahead is lost when a delivery fails
        ("grpc.keepalive_time_ms", round(SILENT_SECONDS * 1000)),
        ("grpc.http2.ping_timeout_ms", round(ANSWER_SECONDS * 1000)),
        ("grpc.http2.max_pings_without_data", 0),  # a server may have nothing to say for days
        ("grpc.use_local_subchannel_pool", 1),  # who begins again does so at once, whatever others have met with
    ]


def _sendable(token: Secret) -> str:
    """gRPC would show it when it complains. Raises `SourceError`."""
    text = token.reveal()
    if not (text.isascii() and text.isprintable()):
        raise SourceError("the token of `authSecret` has characters that cannot be sent: it must be printable ASCII")
    return text


def payload_of(message: bytes) -> bytes | None:
    """None where it is no `generic.Event`."""
    try:
        event: Any = MESSAGES["Event"].FromString(message)
    except DecodeError:
        return None
    payload: bytes = event.payload
    return payload
