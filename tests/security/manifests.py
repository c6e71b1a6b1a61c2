"""EventBus manifests of the secure broker, with their secrets in files, as Kubernetes mounts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eventbus.kafka.connection import Connection
from sensors.spec.busloader import load_event_bus


class Settings:
    """One manifest. A secret is what `write` has written last."""

    def __init__(self, directory: Path, url: str, authority: Path) -> None:
        self._directory = directory
        self._url = url
        self._authority = authority

    def write(self, key: str, secret: str) -> dict[str, str]:
        file = self._directory / "kafka" / key
        file.parent.mkdir(exist_ok=True)
        file.write_text(secret)
        return {"name": "kafka", "key": key}

    def connection(self, sasl: dict[str, Any] | None = None, **tls: Any) -> Connection:
        kafka: dict[str, Any] = {"url": self._url, "tls": {"caCertFile": str(self._authority), **tls}}
        manifest = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "EventBus",
            "metadata": {"name": "default", "namespace": "shop"},
            "spec": {"kafka": kafka | ({} if sasl is None else {"sasl": sasl})},
        }
        file = self._directory / "bus.yaml"
        file.write_text(json.dumps(manifest))
        return load_event_bus(file).connection()
