"""TLS as actions use it: whom to trust, and who we are, from files or secrets."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from eventbus.errors import ConfigError
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Bool, Text

_PAIRS = (("caCertFile", "caCertSecret"), ("clientCertFile", "clientCertSecret"), ("clientKeyFile", "clientKeySecret"))


class TlsSecrets(msgspec.Struct, frozen=True):
    """The values of the secrets that a `tls` names."""

    ca: Secret | None = None
    cert: Secret | None = None
    key: Secret | None = None


class Tls(SpecModel):
    """How to trust the server, and who we are."""

    caCertFile: Text | None = None
    """PEM file with the certificate authorities to trust instead of the system's."""
    caCertSecret: SecretKeySelector | None = None
    """The same, in a secret."""
    clientCertFile: Text | None = None
    """PEM file with our certificate, where the server asks for one."""
    clientCertSecret: SecretKeySelector | None = None
    """The same, in a secret."""
    clientKeyFile: Text | None = None
    """PEM file with its key, unless it is in `clientCertFile` too."""
    clientKeySecret: SecretKeySelector | None = None
    """The same, in a secret."""
    insecureSkipVerify: Bool = False
    """Accept any certificate. Anybody in between can then read and change everything."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        for file, secret in _PAIRS:
            if get(data, file) is not None and get(data, secret) is not None:
                yield Flaw((secret,), f"`{file}` and `{secret}` say the same; leave one out")
        for key, cert in (_PAIRS[2][0], _PAIRS[1][0]), (_PAIRS[2][1], _PAIRS[1][1]):
            if get(data, key) is not None and get(data, cert) is None:
                yield Flaw((key,), f"`{key}` needs `{cert}`")

    def secrets(self) -> TlsSecrets:
        """Raises `ConfigError` when one is not there."""
        selectors = (self.caCertSecret, self.clientCertSecret, self.clientKeySecret)
        return TlsSecrets(*(None if selector is None else selector.read() for selector in selectors))

    def context(self, secrets: TlsSecrets) -> ssl.SSLContext:
        """Raises `ConfigError` when a file or secret cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.insecureSkipVerify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif secrets.ca is not None and self.caCertSecret is not None:
            pem = secrets.ca.reveal()
            use_certificates(f"secret `{self.caCertSecret.name}`", lambda: context.load_verify_locations(cadata=pem))
        elif self.caCertFile is not None:
            file = self.caCertFile
            use_certificates(f"file `{file}`", lambda: context.load_verify_locations(file))
        else:
            context.load_default_certs()
        self._identify(context, secrets)
        return context

    def _identify(self, context: ssl.SSLContext, secrets: TlsSecrets) -> None:
        """An empty pass phrase, because OpenSSL would ask for it on the terminal."""
        cert_file, key_file = self.clientCertFile, self.clientKeyFile
        if cert_file is not None:
            use_certificates(f"file `{cert_file}`", lambda: context.load_cert_chain(cert_file, key_file, lambda: ""))
        elif secrets.cert is not None and self.clientCertSecret is not None:
            pem = "\n".join(each.reveal() for each in (secrets.cert, secrets.key) if each is not None)
            use_certificates(f"secret `{self.clientCertSecret.name}`", lambda: load_chain(context, pem))


def load_chain(context: ssl.SSLContext, pem: str) -> None:
    """Python's ssl reads a key only from a file, so it gets one that nobody else can read and that is gone at once."""
    handle, name = tempfile.mkstemp()  # readable by nobody but us
    try:
        with os.fdopen(handle, "w") as file:
            file.write(pem)
        context.load_cert_chain(name, password=lambda: "")
    finally:
        Path(name).unlink()


def use_certificates(what: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as error:
        reason = "it is not a usable PEM file" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"the TLS {what} cannot be used: {reason}") from None
