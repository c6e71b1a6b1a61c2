"""gRPC servers as manifests name them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from sensors.actions.tls import Tls, TlsSecrets
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.fields import Text

_SERVER = re.compile(r"(dns:(///)?)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")


def _valid_server(text: str) -> str:
    if not _SERVER.fullmatch(text):
        raise ValueError("must be a server as `host:port`")
    return text


GrpcServer = Annotated[Text, AfterValidator(_valid_server)]


def check_authorities(selector: SecretKeySelector | None, authorities: Secret | None) -> None:
    """Raises `ConfigError`: gRPC itself would not say what is wrong with them."""
    if authorities is not None:
        Tls(caCertSecret=selector).context(TlsSecrets(authorities))
