"""Reads the object that an action is about from wherever its `source` says: bounded in size and time, hosts fixed.

Nothing has been sent to the cluster yet, so whatever fails here is safe to try again.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING

from eventbus.errors import ConfigError
from sensors.actions.base import ActionError
from sensors.actions.kube.cluster import Address, Cluster, Object, Refusal
from sensors.actions.kube.git import read_from_git
from sensors.actions.kube.objects import parse_object
from sensors.actions.kube.s3 import signed_request
from sensors.actions.kube.source import ConfigMapSource, S3Source, Source, UrlSource
from sensors.actions.tls import Tls, TlsSecrets

if TYPE_CHECKING:
    from sensors.actions.http_client import HttpClient

MAX_BYTES = 1024 * 1024
"""Of what a source may hold; hardly more fits into a cluster."""
TIMEOUT_SECONDS = 30


class Fetcher:
    """Thread-safe."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def fetch(self, source: Source) -> Object:
        """The object. Raises `ActionError`."""
        try:
            content = self._content(source)
        except ConfigError as error:  # a secret or a tool that is not there, but may come back
            raise ActionError(f"the source cannot be read: {error}", retriable=True, sent=False) from None
        if len(content) > MAX_BYTES:
            raise ActionError(f"the source is larger than {MAX_BYTES // 1024} KiB", retriable=False, sent=False)
        try:
            return parse_object(content.decode("utf-8-sig"), "source")
        except UnicodeDecodeError:
            reason = "it is not UTF-8 text"
        except ConfigError as error:
            reason = str(error)
        raise ActionError(f"the source holds no usable object: {reason}", retriable=False, sent=False)

    def _content(self, source: Source) -> bytes:
        if source.file is not None:
            return _read_file(Path(source.file.path))
        if source.url is not None:
            return _read_url(source.url)
        if source.configmap is not None:
            return self._read_config_map(source.configmap)
        if source.git is not None:
            return read_from_git(source.git, MAX_BYTES, TIMEOUT_SECONDS)
        assert source.s3 is not None  # noqa: S101 - see Source.flaws, and `written` for the rest
        return _read_s3(source.s3)

    def _read_config_map(self, source: ConfigMapSource) -> bytes:
        """From where config maps are mounted, as argo-events does; or else from the cluster."""
        try:
            return source.model_copy(update={"optional": False}).read().reveal().encode()
        except ConfigError as absent:
            not_mounted = absent
        type_ = self._cluster.type_of("v1", "ConfigMap")
        try:
            found = self._cluster.get(Address(type_, source.namespace or self._namespace, source.name))
        except Refusal as refusal:
            raise ConfigError(f"{not_mounted}; {refusal}") from None
        text = (found.get("data") or {}).get(source.key)
        if isinstance(text, str):
            return text.encode()
        try:
            return base64.b64decode((found.get("binaryData") or {})[source.key], validate=True)
        except (KeyError, TypeError, binascii.Error):
            raise ConfigError(f"the config map `{source.name}` of the cluster has no key `{source.key}`") from None


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _read_url(source: UrlSource) -> bytes:
    client = _client(Tls(insecureSkipVerify=not source.verified), TlsSecrets())
    try:
        return _get(client, source.path, {})
    finally:
        client.close()


def _read_s3(source: S3Source) -> bytes:
    ca = None if source.caCertificate is None else source.caCertificate.read()
    url, headers = signed_request(source, source.accessKey.read(), source.secretKey.read())
    client = _client(Tls(caCertSecret=source.caCertificate), TlsSecrets(ca=ca))
    try:
        return _get(client, url, headers)
    finally:
        client.close()


def _client(tls: Tls, secrets: TlsSecrets) -> HttpClient:
    from sensors.actions.http_client import HttpClient  # noqa: PLC0415 - only who fetches pays for urllib3

    return HttpClient(TIMEOUT_SECONDS, tls.context(secrets), max_body=MAX_BYTES + 1)


def _get(client: HttpClient, url: str, headers: dict[str, str]) -> bytes:
    where = url.partition("?")[0]
    try:
        answer = client.request("GET", url, {"User-Agent": "kafka-eventbus", **headers}, None)
    except ActionError as error:
        raise ActionError(f"{where} cannot be read: {error}", retriable=True, sent=False) from None
    if answer.status != 200:
        retriable = answer.status in (408, 425, 429) or answer.status >= 500
        raise ActionError(f"{where} cannot be read: status {answer.status}", retriable=retriable, sent=False)
    return answer.body
