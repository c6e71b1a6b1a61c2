"""How the servers of a cluster are called, and the files that configure them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path

import yaml

from e2e.cluster.building import Parts
from e2e.cluster.credentials import Credentials
from e2e.cluster.image import PAUSE

API_PORT = 443
"""What Kubernetes tells pods, and it cannot be told otherwise."""
_ETCD_PORT = 2379
_PEER_PORT = 2380
_KUBELET_PORT = 10250


class Servers:
    """Of one cluster, whose files are below `directory` and whose address nobody else uses."""

    def __init__(self, parts: Parts, directory: Path, address: str, control_group: str) -> None:
        self._parts, self._directory, self._address = parts, directory, address
        self.credentials = Credentials(directory / "credentials", address)
        self.socket = directory / "containerd.sock"
        (directory / "containerd.toml").write_text(self._containerd_settings())
        (directory / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_settings(control_group)))
        (directory / "resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
        self._write_network()

    @property
    def api_address(self) -> str:
        return f"https://{self._address}:{API_PORT}"

    @property
    def etcd_address(self) -> str:
        return f"https://{self._address}:{_ETCD_PORT}"

    def etcd(self) -> Sequence[str]:
        client, peer = self.etcd_address, f"https://{self._address}:{_PEER_PORT}"
        trusted, certificate, key = self._server_files()
        return self._command(
            "etcd",
            {
                "data-dir": self._directory / "etcd",
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": f"default={peer}",
                **dict.fromkeys(("cert-file", "peer-cert-file"), certificate),
                **dict.fromkeys(("key-file", "peer-key-file"), key),
                **dict.fromkeys(("trusted-ca-file", "peer-trusted-ca-file"), trusted),
                **dict.fromkeys(("client-cert-auth", "peer-client-cert-auth"), "true"),
                "unsafe-no-fsync": "true",  # what it keeps is not needed after the tests
            },
        )

    def api_server(self) -> Sequence[str]:
        """The first address of the network of Services is its own: so it answers where pods look for it."""
        trusted, certificate, key = self._server_files()
        accounts = self.credentials.key("accounts")
        return self._command(
            "kube-apiserver",
            {
                "bind-address": self._address,
                "advertise-address": self._address,
                "secure-port": API_PORT,
                "service-cluster-ip-range": ip_network(f"{self._address}/24", strict=False),
                "etcd-servers": self.etcd_address,
                **dict.fromkeys(("client-ca-file", "etcd-cafile"), trusted),
                **dict.fromkeys(("tls-cert-file", "etcd-certfile", "kubelet-client-certificate"), certificate),
                **dict.fromkeys(("tls-private-key-file", "etcd-keyfile", "kubelet-client-key"), key),
                "authorization-mode": "Node,RBAC",
                "anonymous-auth": "false",
                "service-account-key-file": accounts,
                "service-account-signing-key-file": accounts,
                "service-account-issuer": "https://kubernetes.default.svc",
                "endpoint-reconciler-type": "none",  # endpoints must not have a loopback address
                "kubelet-preferred-address-types": "InternalIP",
            },
        )

    def controller_manager(self) -> Sequence[str]:
        return self._command(
            "kube-controller-manager",
            {
                **self._client_settings("controller-manager"),
                "service-account-private-key-file": self.credentials.key("accounts"),
                "root-ca-file": self.credentials.certificate("authority"),
                "use-service-account-credentials": "true",
                "node-monitor-grace-period": "20s",
            },
        )

    def scheduler(self) -> Sequence[str]:
        return self._command("kube-scheduler", self._client_settings("scheduler"))

    def kubelet(self) -> Sequence[str]:
        return self._command(
            "kubelet",
            {
                "config": self._directory / "kubelet.yaml",
                "kubeconfig": self.credentials.kubeconfig("kubelet"),
                "hostname-override": self._address,  # a node's address may be a loopback one only if it is its name
            },
        )

    def containerd(self) -> Sequence[str]:
        return [str(self._parts.containerd / "containerd"), "--config", str(self._directory / "containerd.toml")]

    def import_image(self, archive: Path) -> Sequence[str]:
        control = str(self._parts.containerd / "ctr")
        return [control, "--address", str(self.socket), "--namespace", "k8s.io", "images", "import", str(archive)]

    def _command(self, server: str, settings: Mapping[str, object]) -> Sequence[str]:
        return [str(self._parts.kubernetes), server, *(f"--{name}={value}" for name, value in settings.items())]

    def _client_settings(self, user: str) -> Mapping[str, object]:
        kubeconfig = self.credentials.kubeconfig(user)
        names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return {**dict.fromkeys(names, kubeconfig), "leader-elect": "false", "secure-port": 0}

    def _server_files(self) -> tuple[Path, Path, Path]:
        found = self.credentials
        return found.certificate("authority"), found.certificate("server"), found.key("server")

    def _containerd_settings(self) -> str:
        """Debian's runc is not on its PATH; what is not in the environment may not make oom_score_adj smaller."""
        return f"""\
version = 2
root = "{self._directory}/containerd/root"
state = "{self._directory}/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{self._directory}/network"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{self._parts.runc}"
      SystemdCgroup = false
"""

    def _kubelet_settings(self, control_group: str) -> Mapping[str, object]:
        _, certificate, key = self._server_files()
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._address,
            "port": _KUBELET_PORT,
            "healthzPort": 0,
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.credentials.certificate("authority"))},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "resolvConf": str(self._directory / "resolv.conf"),
            "podLogsDir": str(self._directory / "pods"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": control_group,
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "oomScoreAdj": 0,  # the one that it would like is refused in many containers
            "makeIPTablesUtilChains": False,
            "syncFrequency": "1s",
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 10,
            "imageGCHighThresholdPercent": 100,  # what is thrown away cannot be pulled again
            "evictionHard": {
                "memory.available": "100Mi",
                **dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"),
            },
        }

    def _write_network(self) -> None:
        """A node without a network is not ready. Pods that use the machine's own never come to it."""
        (self._directory / "network").mkdir()
        settings = {"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "use-hostNetwork-true"}]}
        (self._directory / "network" / "none.conflist").write_text(json.dumps(settings))
