"""Who is who in a cluster: an authority of its own, certificates of servers and users, and how users get in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = timedelta(days=30)
_CLOCK_SKEW = timedelta(hours=1)
_USERS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
}


class Credentials:
    """Files below one directory, made anew for every cluster."""

    def __init__(self, directory: Path, address: str) -> None:
        self._directory = directory
        self._address = address
        directory.mkdir(mode=0o700)
        self._authority_key = ec.generate_private_key(ec.SECP256R1())
        self._authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "eventbus-e2e")])
        self._write_authority()
        self._write_key("accounts", ec.generate_private_key(ec.SECP256R1()))
        self._issue("server", "kubernetes", "system:masters", [address, "localhost", "kubernetes.default.svc"])
        for user, (name, group) in {**_USERS, "kubelet": (f"system:node:{address}", "system:nodes")}.items():
            self._issue(user, name, group)
            self._write_kubeconfig(user)

    def certificate(self, name: str) -> Path:
        """`authority`, `server` (which is a client of other servers, too), or a user."""
        return self._directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        """`accounts` signs the tokens of service accounts."""
        return self._directory / f"{name}.key"

    def kubeconfig(self, user: str) -> Path:
        return self._directory / f"{user}.kubeconfig"

    def _write_authority(self) -> None:
        public = self._authority_key.public_key()
        builder = self._builder(self._authority_name, public)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._write_certificate("authority", builder)

    def _issue(self, file: str, name: str, group: str | None, hosts: Sequence[str] = ()) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self._write_key(file, key)
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if group is not None:
            subject.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        builder = self._builder(x509.Name(subject), key.public_key())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False
            )
        self._write_certificate(file, builder)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(issuer_name=self._authority_name, subject_name=subject, public_key=key)
        builder = builder.serial_number(x509.random_serial_number())
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._authority_key.public_key())
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        builder = builder.add_extension(identifier, critical=False)
        return builder.not_valid_before(now - _CLOCK_SKEW).not_valid_after(now + _VALID)

    def _write_certificate(self, name: str, builder: x509.CertificateBuilder) -> None:
        signed = builder.sign(self._authority_key, hashes.SHA256())
        self.certificate(name).write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> None:
        content = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        self.key(name).touch(0o600)
        self.key(name).write_bytes(content)

    def _write_kubeconfig(self, user: str) -> None:
        cluster = {"server": f"https://{self._address}", "certificate-authority": str(self.certificate("authority"))}
        who = {"client-certificate": str(self.certificate(user)), "client-key": str(self.key(user))}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": user, "user": who}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
            "current-context": "e2e",
        }
        self.kubeconfig(user).write_text(yaml.safe_dump(document))


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
