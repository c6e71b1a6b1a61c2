"""An identity provider: issues tokens over HTTPS to whoever knows the client's secret."""

from __future__ import annotations

import base64
import json
import math
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

AUDIENCE = "kafka"
ISSUER = "https://provider.example"
_KEY_ID = "first"


class Signer:
    """The provider's key, and what brokers have to know of it."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_numbers()
        public = {"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": _KEY_ID}
        public |= {"x": _encoded(_number(point.x)), "y": _encoded(_number(point.y))}
        self.file = directory / "jwks.json"
        self.file.write_text(json.dumps({"keys": [public]}))

    def token(self, **claims: Any) -> str:
        head, body = (
            _encoded(json.dumps(each).encode()) for each in ({"alg": "ES256", "kid": _KEY_ID, "typ": "JWT"}, claims)
        )
        signature = self._key.sign(f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
        return f"{head}.{body}.{_encoded(b''.join(map(_number, decode_dss_signature(signature))))}"


class Provider:
    """What it issues, and to whom, may change at any time."""

    def __init__(self, signer: Signer, client: str) -> None:
        self._signer = signer
        self._client = client
        self.secret = "open-sesame"
        self.seconds = 3600
        self.audience = AUDIENCE
        self.scopes: list[str | None] = []
        """What was asked for, once per token."""
        self.url = ""

    def answer(self, authorization: str, form: str) -> tuple[int, dict[str, Any]]:
        known = f"{self._client}:{self.secret}".encode()
        if authorization != f"Basic {base64.b64encode(known).decode()}":
            return 401, {"error": "invalid_client", "error_description": f"not {authorization}"}
        asked = parse_qs(form)
        assert asked["grant_type"] == ["client_credentials"]
        self.scopes += asked.get("scope", [None])
        now = time.time()
        claims = {"sub": self._client, "aud": self.audience, "iss": ISSUER, "iat": math.floor(now)}
        token = self._signer.token(**claims, exp=math.ceil(now) + self.seconds, scope="kafka")
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.seconds}

    @contextmanager
    def serving(self, certificate: Path) -> Iterator[None]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, body = provider.answer(self.headers["Authorization"], form)
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                """To nobody."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        with ThreadingHTTPServer(("localhost", 0), Handler) as server:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.handle_error = lambda *_: None  # type: ignore[method-assign]  # whoever does not trust it hangs up
            self.url = f"https://localhost:{server.server_port}/token"
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()


def _number(value: int) -> bytes:
    return value.to_bytes(32, "big")


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
