"""Leases of `coordination.k8s.io/v1`, the ones that Kubernetes' own components elect their leaders with.

What others have put into the object (labels, an owner) is written back as it was read. Nothing is repeated here:
whoever asks decides what to do about a request that was not answered. A service account needs the verbs `get`, `create`
and `update` on `leases`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
import urllib3

from eventbus.kubeaccess import connection_pools, credentials, load_configuration, one_line
from eventbus.names import check_name
from eventsources.election.ports import Conflict, Gone, Record, Seen, Unreachable

Object: TypeAlias = dict[str, Any]
_API = "/apis/coordination.k8s.io/v1"
_MAX_MESSAGE = 300
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Of a connection. With it no two messages would be the same, and each would be logged as a new one."""


class KubernetesLeases:
    """A `LeaseStore`: one Lease of a namespace.

    Raises `ConfigError` when it is not known how to reach a cluster.
    """

    def __init__(self, lease: str, namespace: str) -> None:
        check_name("lease", lease)
        check_name("namespace", namespace)
        self._configuration = load_configuration("programs that elect a leader")
        self._pools = connection_pools(self._configuration)
        self._lease = lease
        self._namespace = namespace
        self._last: Object = {}

    @property
    def name(self) -> str:
        return f"{self._namespace}/{self._lease}"

    def get(self, timeout: float) -> Seen | Gone | Unreachable:
        answer = self._request("GET", self._lease, None, timeout)
        return Unreachable("the cluster answered a read with 409") if isinstance(answer, Conflict) else answer

    def create(self, record: Record, timeout: float) -> Seen | Conflict | Unreachable:
        metadata = {"name": self._lease, "namespace": self._namespace}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": _spec(record)}
        answer = self._request("POST", "", body, timeout)
        return Unreachable(f"there is no namespace `{self._namespace}`") if isinstance(answer, Gone) else answer

    def replace(self, record: Record, version: str, timeout: float) -> Seen | Gone | Conflict | Unreachable:
        metadata = {**self._last["metadata"], "resourceVersion": version}
        spec = {**self._last.get("spec", {}), **_spec(record)}
        return self._request("PUT", self._lease, {**self._last, "metadata": metadata, "spec": spec}, timeout)

    def close(self) -> None:
        self._pools.clear()

    def _request(
        self, method: str, name: str, body: Object | None, timeout: float
    ) -> Seen | Gone | Conflict | Unreachable:
        host = self._configuration.host.rstrip("/")
        try:
            headers = {"Accept": "application/json", "User-Agent": "kafka-eventbus", **credentials(self._configuration)}
            response = self._pools.request(
                method,
                f"{host}{_API}/namespaces/{self._namespace}/leases/{name}".rstrip("/"),
                body=None if body is None else msgspec.json.encode(body),
                headers={**headers, "Content-Type": "application/json"},
                timeout=urllib3.Timeout(total=timeout),
                retries=False,
                redirect=False,
            )
        except Exception as error:  # also whatever a helper that fetches a new token may raise
            return Unreachable(f"the cluster: {_ADDRESS.sub('', one_line(error))}")
        return self._understood(response.status, _document(response.data))

    def _understood(self, status: int, document: Object) -> Seen | Gone | Conflict | Unreachable:
        match status, document.get("kind"), document.get("reason"):
            case ((200 | 201), "Lease", _):
                self._last = document
                return Seen(_record(document.get("spec") or {}), document["metadata"]["resourceVersion"])
            case 404, "Status", "NotFound":
                return Gone()
            case 409, "Status", _:
                return Conflict()
        words = f"{status} {document.get('reason', '')} {document.get('message', '')}".split()
        return Unreachable(f"the cluster answered {' '.join(words)[:_MAX_MESSAGE]}")


def _document(body: bytes) -> Object:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return document if isinstance(document, dict) else {}


# --- the object -----------------------------------------------------------------------------------------------------


def _spec(record: Record) -> Object:
    return {
        "holderIdentity": record.holder or None,
        "leaseDurationSeconds": record.duration,
        "leaseTransitions": record.transitions,
        "acquireTime": _micro_time(record.acquired_ms),
        "renewTime": _micro_time(record.renewed_ms),
    }


def _record(spec: Object) -> Record:
    """Every field may be missing: other programs make leases too."""
    return Record(
        holder=spec.get("holderIdentity") or "",
        duration=spec.get("leaseDurationSeconds") or 0,
        transitions=spec.get("leaseTransitions") or 0,
        acquired_ms=_milliseconds(spec.get("acquireTime")),
        renewed_ms=_milliseconds(spec.get("renewTime")),
    )


def _micro_time(milliseconds: int) -> str:
    """Kubernetes insists on all six digits, zeros too."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _milliseconds(micro_time: str | None) -> int:
    return 0 if micro_time is None else round(datetime.fromisoformat(micro_time).timestamp() * 1000)
