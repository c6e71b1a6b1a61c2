"""The certificate of the validating webhook: made once, kept in a Secret, and told to the API server.

Nobody but the API server has to trust it, so it signs itself. All replicas of the controller serve the same one; who
finds none makes one, and where two do so at once, the cluster lets one of them win.
"""

from __future__ import annotations

import ssl
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from eventbus.controller.objects import Object, Objects
from sensors.actions.kube.cluster import Refusal

SECRET = "eventbus-webhook"  # noqa: S105 - a name
SERVICE = "eventbus-webhook"
CONFIGURATION = "eventbus"
_LIFETIME = timedelta(days=10 * 365)
_RENEWED_BEFORE = timedelta(days=365)
_ADMISSION = "admissionregistration.k8s.io/v1"


class Certificate(msgspec.Struct, frozen=True):
    """In PEM."""

    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        with TemporaryDirectory() as folder:  # Python's TLS reads chains from files only
            path = Path(folder) / "chain.pem"
            path.touch(mode=0o600)
            path.write_text(self.certificate + self.key)
            made.load_cert_chain(path)
        return made


def ensure_certificate(objects: Objects, namespace: str) -> Certificate:
    """The one in the Secret; made where there is none, or where it ends soon. Raises `ActionError`."""
    known = objects.find("v1", "Secret", namespace, SECRET)
    found = None if known is None else _decoded(known)
    if found is not None and _end(found) - datetime.now(UTC) > _RENEWED_BEFORE:
        return found
    made = _make(f"{SERVICE}.{namespace}.svc")
    metadata: Object = {"name": SECRET, "namespace": namespace}
    if known is not None:
        metadata["resourceVersion"] = known["metadata"]["resourceVersion"]
    data = {"tls.crt": _encoded(made.certificate), "tls.key": _encoded(made.key)}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}
    try:
        objects.create(secret) if known is None else objects.replace(secret)
    except Refusal as refusal:
        if refusal.code != HTTPStatus.CONFLICT:
            raise
        return ensure_certificate(objects, namespace)  # another replica was faster
    return made


def make_trusted(objects: Objects, certificate: Certificate) -> bool:
    """Tell the API server whom to trust. Returns whether there is a webhook at all."""
    configuration = objects.find(_ADMISSION, "ValidatingWebhookConfiguration", "", CONFIGURATION)
    if configuration is None:
        return False
    trusted = _encoded(certificate.certificate)
    webhooks = [
        {**each, "clientConfig": {**each["clientConfig"], "caBundle": trusted}} for each in configuration["webhooks"]
    ]
    if webhooks != configuration["webhooks"]:
        objects.merge(configuration, {"webhooks": webhooks})
    return True


def _make(host: str) -> Certificate:
    from cryptography import x509  # noqa: PLC0415 - only the controller needs it
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, SERVICE)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return Certificate(certificate.public_bytes(pem).decode(), private.decode())


def _decoded(secret: Object) -> Certificate | None:
    data = secret.get("data") or {}
    if "tls.crt" not in data or "tls.key" not in data:
        return None
    return Certificate(b64decode(data["tls.crt"]).decode(), b64decode(data["tls.key"]).decode())


def _end(certificate: Certificate) -> datetime:
    from cryptography import x509  # noqa: PLC0415

    return x509.load_pem_x509_certificate(certificate.certificate.encode()).not_valid_after_utc


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
