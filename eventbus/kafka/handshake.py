"""What is wrong between a client and a broker that does not finish a TLS handshake with it.

librdkafka says no more than "certificate verify failed". Python's own TLS, asked to do the same, says why. A broker
that does not accept the client's certificate says "bad certificate", and nothing of what is bad about it.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_TIME = rb"(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)"
_VALIDITY = re.compile(_TIME + _TIME, re.DOTALL)
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


def own_certificate_fault(broker: str, settings: Mapping[str, Any]) -> str | None:
    """Why a broker may refuse the certificate of a client with these settings; None where that cannot be told."""
    try:
        pem = settings.get("ssl.certificate.pem") or _text(settings.get("ssl.certificate.location"))
        validity = None if pem is None else _validity(pem)
    except (OSError, ValueError):
        return None
    if pem is None:
        if "ssl.keystore.location" in settings:
            return None
        return (
            f"{broker} wants a certificate of this client, and there is none. "
            "Set `tls.clientCertSecret` and `tls.clientKeySecret` (docs/connection.md)."
        )
    refused = f"{broker} refuses this client's certificate: it"
    now = datetime.now(UTC)
    if validity is not None and now > validity[1]:
        return f"{refused} has expired on {validity[1]:%Y-%m-%d}. Renew it."
    if validity is not None and now < validity[0]:
        return f"{refused} is not valid before {validity[0]:%Y-%m-%d}. Compare the clocks, or wait."
    return f"{refused} must be issued for clients, by an authority that the broker trusts (docs/connection.md)."


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


def _text(file: str | None) -> str | None:
    return None if file is None else Path(file).read_text()


def _validity(pem: str) -> tuple[datetime, datetime] | None:
    """From when and until when a certificate is good: two times, one after the other, as no other field has them."""
    first = _CERTIFICATE.search(pem)
    found = None if first is None else _VALIDITY.search(ssl.PEM_cert_to_DER_cert(first[0]))
    if found is None:
        return None
    begin, end = (text.decode() for text in found.groups() if text is not None)
    return _moment(begin), _moment(end)


def _moment(text: str) -> datetime:
    """Years of two digits begin with 1950."""
    full = text if len(text) == 14 else f"{'19' if text >= '50' else '20'}{text}"
    return datetime.strptime(full, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


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
