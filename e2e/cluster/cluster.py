"""One cluster, from its start to its end."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory, mkdtemp
from types import TracebackType
from typing import Any, Self

import urllib3
from kubernetes import client, config
from urllib3.exceptions import HTTPError

from e2e.cluster.building import Parts, locked, parts, place
from e2e.cluster.image import pause_image, project_image
from e2e.cluster.namespaces import Namespaces, Process
from e2e.cluster.network import network, remove_network
from e2e.cluster.servers import Servers
from eventbus.errors import MachineError
from eventbus.jvm.places import make_directory

_PATIENCE = 90.0
_GLANCE_SECONDS = 0.1
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_LOCK = "lock"


class Cluster:
    """Starts when it is made. Raises `MachineError` when that is not possible."""

    def __init__(self) -> None:
        with ExitStack() as end:
            self._start(parts(), end)
            self._end = end.pop_all()

    @property
    def kubeconfig(self) -> Path:
        """Of a user who may do everything."""
        return self._servers.credentials.kubeconfig("admin")

    @property
    def logs(self) -> Path:
        return self._directory / "logs"

    def close(self) -> None:
        self._end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def import_image(self, write: Callable[[Path, Path], None]) -> None:
        """For pods. `write` is told where to, and where it may keep what it will need again."""
        self._import("image", write)

    def kill_api_server(self) -> None:
        self._processes.pop("api-server").end(SIGKILL)

    def start_api_server(self) -> None:
        """Returns when it answers."""
        self._run("api-server", self._servers.api_server())
        self._wait("the API server", self._api_answers)

    def forget_history(self) -> None:
        """What has happened until now cannot be watched any more, as after some minutes of a busy cluster.

        etcd is told to forget it, and so is the API server, which has a memory of its own: it is started anew.
        """
        self.kill_api_server()
        revision = self._ask_etcd("range", {"key": "AA=="})["header"]["revision"]
        self._ask_etcd("compaction", {"revision": revision, "physical": True})
        self.start_api_server()

    def _ask_etcd(self, method: str, question: dict[str, object]) -> Any:
        answer = self._request("POST", f"{self._servers.etcd_address}/v3/kv/{method}", json=question)
        if answer.status != 200:
            raise MachineError(f"etcd answered {answer.status}: {answer.data.decode(errors='replace')[:300]}")
        return answer.json()

    def _request(self, method: str, url: str, **content: Any) -> urllib3.BaseHTTPResponse:
        credentials = self._servers.credentials
        pools = urllib3.PoolManager(
            ca_certs=str(credentials.certificate("authority")),
            cert_file=str(credentials.certificate("server")),
            key_file=str(credentials.key("server")),
        )
        try:
            return pools.request(method, url, timeout=10, retries=False, **content)
        finally:
            pools.clear()

    # --- its start --------------------------------------------------------------------------------------------------

    def _start(self, made_of: Parts, end: ExitStack) -> None:
        self._directory = end.enter_context(_directory())
        control_group = end.enter_context(_control_group(self._directory.name))
        self.logs.mkdir()
        self.network = end.enter_context(network(self._directory.name))
        self._servers = Servers(made_of, self._directory, self.network, control_group)
        own = {"containerd": Path("/run/containerd"), "kubelet": Path("/var/lib/kubelet")}
        mounts = {self._directory / "mounted" / name: target for name, target in own.items()}
        self._namespaces = Namespaces(mounts, self.logs / "namespaces.log")
        end.callback(self._namespaces.close)
        self._environment = {
            "PATH": f"{made_of.containerd}:/usr/sbin:/usr/bin:/sbin:/bin",
            "LD_LIBRARY_PATH": str(made_of.libraries),
        }
        self._processes: dict[str, Process] = {}
        self._run("containerd", self._servers.containerd())
        self._run("etcd", self._servers.etcd())
        self.start_api_server()
        self._import_images(made_of)
        self._run("controller-manager", self._servers.controller_manager())
        self._run("scheduler", self._servers.scheduler())
        self._run("kubelet", self._servers.kubelet())
        self._wait("a node", self._node_is_ready)
        self._wait("service accounts", self._pods_may_be_made)

    def _run(self, name: str, command: Any) -> Process:
        started = self._namespaces.start(command, self.logs / f"{name}.log", self._environment)
        self._processes[name] = started
        return started

    def _import_images(self, made_of: Parts) -> None:
        self._wait("containerd", self._servers.socket.exists)
        self._import("pause", lambda archive, _: pause_image(archive, made_of.pause))
        self._import("project", project_image)

    def _import(self, name: str, write: Callable[[Path, Path], None]) -> None:
        with TemporaryDirectory(dir=self._directory) as images:
            archive = Path(images) / f"{name}.tar"
            write(archive, place())
            if self._run("import", self._servers.import_image(archive)).wait():
                raise MachineError(f"containerd does not take an image: {self._last_words('import')}")
            del self._processes["import"]

    def _wait(self, what: str, there: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not there():
            gone = next((name for name, each in self._processes.items() if each.ended()), None)
            if gone is not None:
                raise MachineError(f"{gone} has ended: {self._last_words(gone)}")
            if time.monotonic() > end:
                raise MachineError(f"{what} did not get ready within {_PATIENCE:.0f} s")
            time.sleep(_GLANCE_SECONDS)

    def _last_words(self, name: str) -> str:
        lines = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()
        return lines[-1][:500] if lines else "it did not say why"

    def _api_answers(self) -> bool:
        with suppress(HTTPError):
            return self._request("GET", f"{self._servers.api_address}/readyz").status == 200
        return False

    def _node_is_ready(self) -> bool:
        conditions = [each for node in self._core().list_node().items for each in node.status.conditions or []]
        return any(each.type == "Ready" and each.status == "True" for each in conditions)

    def _pods_may_be_made(self) -> bool:
        return bool(self._core().list_namespaced_service_account("default").items)

    def _core(self) -> Any:
        settings = client.Configuration()
        config.load_kube_config(str(self.kubeconfig), client_configuration=settings)  # type: ignore[no-untyped-call]
        settings.retries = False
        return client.CoreV1Api(client.ApiClient(settings))


# --- what it takes of the machine -----------------------------------------------------------------------------------


@contextmanager
def _directory() -> Iterator[Path]:
    """A new one below the cache."""
    make_directory(place() / "running")
    with locked("running"):  # else another process might take the new one for one that was left
        _remove_what_is_left()
        directory = Path(mkdtemp(dir=place() / "running", prefix="eventbus-e2e-"))
        lock = (directory / _LOCK).open("ab")
        fcntl.flock(lock, fcntl.LOCK_EX)
    with lock:
        try:
            yield directory
        finally:
            shutil.rmtree(directory)


def _remove_what_is_left() -> None:
    """Of clusters whose owners were killed: nobody holds the lock any more."""
    for left in (place() / "running").iterdir():
        with suppress(FileNotFoundError, BlockingIOError), (left / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_control_groups(left.name)
            remove_network(left.name)
            shutil.rmtree(left)


@contextmanager
def _control_group(name: str) -> Iterator[str]:
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir()
    try:
        yield f"/{name}"
    finally:
        _remove_control_groups(name)


def _remove_control_groups(name: str) -> None:
    """A group whose processes have all ended can be removed, those below it first."""
    for hierarchy in _hierarchies():
        found = [*(hierarchy / name).rglob("*/"), hierarchy / name]
        for group in sorted(found, key=lambda each: len(each.parts), reverse=True):
            with suppress(OSError):
                group.rmdir()


def _hierarchies() -> list[Path]:
    """One for each controller, or a single one for all of them."""
    if (_CONTROL_GROUPS / "cgroup.controllers").exists():
        return [_CONTROL_GROUPS]
    return [each for each in _CONTROL_GROUPS.iterdir() if each.is_dir() and not each.is_symlink()]
