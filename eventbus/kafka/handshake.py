"""What is wrong between a client and a broker that does not finish a TLS handshake with it.

librdkafka says no more than "certificate verify failed". Python's own TLS, asked to do the same, says why.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any

_SECONDS = 1.0
_EXPIRED = 10
_NOT_YET_VALID = 9
_UNTRUSTED = frozenset({2, 18, 19, 20, 21})
_WRONG_NAME = frozenset({62, 64})


def certificate_fault(host: str, port: int, settings: Mapping[str, Any]) -> str | None:
    """What a client with these settings holds against the certificate of a broker; None where it finds nothing."""
    try:
        with (
            socket.create_connection((host, port), _SECONDS) as connection,
            _context(settings).wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return _sentence(f"{host}:{port}", error)
    except OSError:
        return None


def speaks_tls(host: str, port: int) -> bool | None:
    """None where nobody listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), _SECONDS) as connection:
            return _shakes_hands(connection, context)
    except OSError:
        return None


def _shakes_hands(connection: socket.socket, context: ssl.SSLContext) -> bool:
    try:
        context.wrap_socket(connection).close()
    except OSError:
        return False
    return True


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    file, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    if file or pem:
        return ssl.create_default_context(cafile=file, cadata=pem)
    return ssl.create_default_context()


def _sentence(address: str, error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return f"the certificate of {address} has expired. Renew it on the broker."
    if code == _NOT_YET_VALID:
        return f"the certificate of {address} is not valid yet. Compare the clocks of this machine and the broker."
    if code in _UNTRUSTED:
        return (
            f"the certificate of {address} was issued by an authority that this client does not trust. "
            "Name the broker's authority as the CA certificate (docs/connection.md)."
        )
    if code in _WRONG_NAME:
        return (
            f"the certificate of {address} is for another host. Reach the broker by a name that is in its certificate, "
            "or put this one into the certificate."
        )
    return f"the certificate of {address} is not accepted: {error.verify_message}."
