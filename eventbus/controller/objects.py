"""Objects of a Kubernetes cluster, by their kind and name."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import urlencode

from sensors.actions.kube.cluster import APPLY, Address, Cluster, Refusal

Object: TypeAlias = dict[str, Any]

_MERGE = "application/merge-patch+json"


class Objects:
    """Thread-safe, as the cluster is. Raises `ActionError`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        try:
            return self._cluster.get(self._address(api_version, kind, namespace, name))
        except Refusal as refusal:
            if refusal.code != HTTPStatus.NOT_FOUND:
                raise
            return None

    def list(
        self, api_version: str, kind: str, namespace: str | None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Of one namespace, or of all."""
        query = urlencode({"labelSelector": labels, "fieldSelector": fields})
        return self._cluster.list(self._cluster.type_of(api_version, kind), namespace, query)

    def apply(self, target: Object) -> Object:
        """Create or change it; what others have set in it stays."""
        return self._cluster.patch(self._of(target), target, APPLY)

    def create(self, target: Object) -> Object:
        """Refused with `AlreadyExists` when it is there."""
        return self._cluster.create(self._of(target), target)

    def replace(self, target: Object) -> Object:
        """Refused with `Conflict` when somebody else has changed it since it was read."""
        return self._cluster.replace(self._of(target), target)

    def merge(self, target: Object, change: Object, subresource: str = "") -> Object:
        return self._cluster.patch(self._of(target), change, _MERGE, subresource)

    def delete(self, target: Object) -> None:
        try:
            self._cluster.delete(self._of(target))
        except Refusal as refusal:
            if refusal.code != HTTPStatus.NOT_FOUND:
                raise

    def _of(self, target: Object) -> Address:
        metadata = target["metadata"]
        return self._address(target["apiVersion"], target["kind"], metadata.get("namespace", ""), metadata["name"])

    def _address(self, api_version: str, kind: str, namespace: str, name: str) -> Address:
        return Address(self._cluster.type_of(api_version, kind), namespace, name)
