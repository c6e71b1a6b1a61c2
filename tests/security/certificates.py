"""Certificates of the tests' own authorities."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_YESTERDAY = datetime.now(UTC) - timedelta(days=1)
_TOMORROW = datetime.now(UTC) + timedelta(days=1)


class Authority:
    """Issues certificates."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = self._signed(
            self._builder(self._name, self._key.public_key(), _TOMORROW).add_extension(
                x509.BasicConstraints(ca=True, path_length=None), critical=True
            )
        )
        self.file = directory / f"{name}.pem"
        """The authority's own certificate."""
        self.file.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def issue(self, host: str, *, expired: bool = False) -> Path:
        """A PEM file with a key and the certificate of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = _YESTERDAY + timedelta(hours=1) if expired else _TOMORROW
        certificate = self._signed(
            self._builder(_named(host), key.public_key(), end).add_extension(
                x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
            )
        )
        file = self._directory / f"{host}{'-expired' if expired else ''}.pem"
        chain = b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, self._certificate))
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
        return file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, end: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_YESTERDAY)
            .not_valid_after(end)
        )

    def _signed(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
