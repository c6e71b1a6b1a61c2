"""How to reach the Kubernetes API, and who we are there. The `kubernetes` package knows; it is an optional extra."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventbus.errors import ConfigError

if TYPE_CHECKING:
    import urllib3
    from kubernetes.client import Configuration

_MAX_MESSAGE = 300


def load_configuration(needed_by: str) -> Configuration:
    """As `kubectl` finds it, except that a pod's own service account comes before a file in the home directory.

    Raises `ConfigError` when it is not known how to reach a cluster. `needed_by` is a plural, for its message.
    """
    try:
        from kubernetes import client, config  # noqa: PLC0415 - only who has to do with Kubernetes needs it
    except ImportError:
        raise ConfigError(f"{needed_by} need the Kubernetes client: pip install 'kafka-eventbus[kubernetes]'") from None
    configuration = client.Configuration()
    files = os.environ.get("KUBECONFIG")
    in_cluster = not files and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    if not files and not in_cluster and not Path("~/.kube/config").expanduser().exists():
        raise ConfigError(
            "there is no Kubernetes cluster to act on: run in one, or name a kubeconfig file in KUBECONFIG"
        )
    try:
        if in_cluster:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(config_file=files, client_configuration=configuration)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever a damaged file makes of the client's own reader
        where = f"KUBECONFIG={files}" if files else "the Kubernetes configuration"
        raise ConfigError(f"{where} cannot be used: {one_line(error)}") from None
    return configuration


def connection_pools(configuration: Configuration) -> urllib3.PoolManager:
    """Connections with the cluster's TLS settings. Raises `ConfigError` when its files cannot be used."""
    from kubernetes.client import ApiClient  # noqa: PLC0415

    try:
        pools: urllib3.PoolManager = ApiClient(configuration).rest_client.pool_manager
    except OSError as error:
        raise ConfigError(f"the TLS files of the Kubernetes configuration cannot be used: {one_line(error)}") from None
    return pools


def credentials(configuration: Configuration) -> Mapping[str, str]:
    """Headers that say who we are. Ask for them every time: tokens expire, and the client renews them."""
    settings: Iterable[Mapping[str, Any]] = configuration.auth_settings().values()  # type: ignore[assignment]
    return {each["key"]: each["value"] for each in settings if each["in"] == "header" and each["value"]}


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MAX_MESSAGE] or type(error).__name__
