"""The directory in which a cluster keeps its nodes' data: whose it is, who uses it, and when it goes away.

kafka.json      Kafka version, number of nodes and cluster id; written before anything else
lock            held by whoever runs the cluster, until its last node has ended
node-1/         one per node, see `node.py`
"""

from __future__ import annotations

import base64
import fcntl
import shutil
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import msgspec

from eventbus.broker.places import KAFKA_VERSION
from eventbus.errors import ConfigError
from eventbus.jvm.places import explained, make_directory, require_free

NODE_MIB = 200
PREDECESSOR_SECONDS = 3.0


class Marker(msgspec.Struct, frozen=True):
    """What `kafka.json` says."""

    kafka: str
    nodes: int
    cluster_id: str


class DataDirectory:
    """A data directory in use. Close it when the last node has ended."""

    def __init__(self, path: Path | None, nodes: int) -> None:
        """Take the directory at `path`, or without one a temporary one that is removed by `close`."""
        self.temporary = path is None
        with ExitStack() as undo:
            self.path = path.absolute() if path else _temporary_directory(undo)
            if "," in str(self.path):
                raise ConfigError(f"data directory {self.path} cannot be used: Kafka takes no comma in its path")
            make_directory(self.path)
            require_free(self.path, NODE_MIB * nodes, "the broker")
            with explained(self.path):
                self._lock = undo.enter_context(self._locked())
            self.cluster_id = self._marker(nodes).cluster_id
            self._undo = undo.pop_all()

    def node(self, number: int) -> Path:
        """The directory of one node."""
        return self.path / f"node-{number}"

    @property
    def lock(self) -> int:
        """The file descriptor that holds the lock; the nodes' guards inherit it, so that it outlives our process."""
        return self._lock.fileno()

    def close(self) -> None:
        """Let others use the directory; remove it if it was a temporary one."""
        self._undo.close()

    def _locked(self) -> IO[str]:
        lock = (self.path / "lock").open("w")
        deadline = time.monotonic() + PREDECESSOR_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    lock.close()
                    raise ConfigError(
                        f"data directory {self.path} is in use by another broker: stop that one "
                        "(`eventbus broker status` may know it) or choose another with --data"
                    ) from None
                time.sleep(0.05)  # a predecessor that was killed takes its nodes with it in a moment
            else:
                return lock

    def _marker(self, nodes: int) -> Marker:
        file = self.path / "kafka.json"
        if not file.exists():
            if any(entry.name != "lock" for entry in self.path.iterdir()):
                raise ConfigError(
                    f"{self.path} is not empty and not a broker's data directory: choose an empty one with --data"
                )
            marker = Marker(KAFKA_VERSION, nodes, _new_cluster_id())
            with explained(self.path):
                file.with_suffix(".tmp").write_bytes(msgspec.json.encode(marker))
                file.with_suffix(".tmp").replace(file)
        return self._checked(file, nodes)

    def _checked(self, file: Path, nodes: int) -> Marker:
        try:
            marker = msgspec.json.decode(file.read_bytes(), type=Marker)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{file} cannot be read ({error}): choose another directory with --data") from error
        if marker.kafka != KAFKA_VERSION:
            raise ConfigError(
                f"{self.path} holds data of Kafka {marker.kafka}, this is {KAFKA_VERSION}: "
                "remove that directory or choose another with --data"
            )
        if marker.nodes != nodes:
            raise ConfigError(
                f"{self.path} holds a cluster of {marker.nodes} node(s), not {nodes}: start it with "
                f"--nodes {marker.nodes}, remove that directory, or choose another with --data"
            )
        return marker


def _temporary_directory(undo: ExitStack) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="kafka-eventbus-"))
    undo.callback(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _new_cluster_id() -> str:
    """A random id as Kafka writes it; like Kafka's own, never one that looks like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
