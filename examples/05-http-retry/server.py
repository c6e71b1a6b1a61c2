"""A bank for the example: some cards work, some work at the second try, some never do."""

# ruff: noqa: T201 - it shows what it is asked and what it answers

from __future__ import annotations

import json
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Bank(ThreadingHTTPServer):
    """Remembers how often each action called, by its `Idempotency-Key`."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.attempts: Counter[str] = Counter()

    def answer(self, card: str, key: str) -> int:
        self.attempts[key] += 1
        match card:
            case "stolen":
                return 422  # permanent: another try would not help
            case "offline":
                return 503  # worth another try, every time
            case "slow" if self.attempts[key] == 1:
                return 503
            case _:
                return 204


class Handler(BaseHTTPRequestHandler):
    server: Bank

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.answer(body["card"], self.headers["Idempotency-Key"])
        print(f"card={body['card']} amount={body['amount']} -> {status}", flush=True)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_line: object) -> None:
        """One line per call is enough, and `do_POST` prints it."""


if __name__ == "__main__":
    with Bank(int(sys.argv[1]) if len(sys.argv) > 1 else 8080) as bank:
        bank.serve_forever()
