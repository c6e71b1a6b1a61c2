"""A real server of argo-events' gRPC service `generic.Eventing`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Any

import grpc

from eventsources.sources.grpc_stream import MESSAGES, METHOD, SERVICE


class EventingServer:
    """Sends what it is told to, to whoever has asked last. Nothing that was sent is sent again."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None, port: int = 0) -> None:
        self.asked: list[tuple[Any, dict[str, str]]] = []
        self.token: str | None = None
        self.sent = 0
        """Messages that gRPC has taken to send them."""
        self._credentials = credentials
        self._left: deque[bytes | None] = deque()
        self._changed = Condition()
        self.port = port
        self.start()

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(
            self._answer, request_deserializer=MESSAGES["EventSource"].FromString
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        address = f"127.0.0.1:{self.port}"
        if self._credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self._credentials)
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.send_raw(MESSAGES["Event"](name="example", payload=payload).SerializeToString())

    def send_raw(self, message: bytes | None) -> None:
        with self._changed:
            self._left.append(message)
            self._changed.notify_all()

    def end_stream(self) -> None:
        self.send_raw(None)

    def _answer(self, request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
        if self.token is not None and metadata.get("authorization") != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, f"not\nwith {metadata.get('authorization')}")
        with self._changed:
            self.asked.append((request, metadata))
            turn = len(self.asked)
            self._changed.notify_all()
        context.add_callback(self._look)
        while (message := self._next(turn, context)) is not None:
            yield message

    def _next(self, turn: int, context: grpc.ServicerContext) -> bytes | None:
        def over() -> bool:
            return turn < len(self.asked) or not context.is_active()

        with self._changed:
            self._changed.wait_for(lambda: self._left or over())
            if over():
                return None
            self.sent += 1
            return self._left.popleft()

    def _look(self) -> None:
        with self._changed:
            self._changed.notify_all()
