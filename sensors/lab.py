"""A sensor under observation: replicas as real processes, a real target for their actions, and a verdict.

The demo shows it, the end-to-end tests torment it.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL, Popen
from sys import executable

from eventbus.bus import Bus
from eventbus.clock import SystemClock
from eventbus.errors import FatalError
from eventbus.events import Event
from eventbus.formats import Source, action_fact
from eventbus.names import Kind, Stage
from eventbus.ports import Committed, Record
from eventbus.topics import ensure_sensor_topics
from sensors.audit.commits import SeenCommit
from sensors.audit.invocations import Call, Mishap
from sensors.audit.verdict import Evidence, Verdict, judge
from sensors.evidence import TriggerState
from sensors.inspection import held_state, read_range, stable_commits
from sensors.join import HORIZON_RECORDS
from sensors.replicalogs import last_words, own_mishaps
from sensors.sensor import Sensor

_KILLED = -9


class Sink:
    """A target for `http` actions with a ledger of its own: every request, by its path and idempotency key."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.invoked: Counter[str] = Counter()
        """How many requests each path has had."""
        self._clock = SystemClock()
        self._lock = threading.Lock()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                sink.note(self.path.strip("/"), self.headers["Idempotency-Key"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Keep the terminal clean."""

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def note(self, path: str, key: str) -> None:
        now = self._clock.now_ms()
        with self._lock:
            self.calls.append(Call(key, "", now, now, succeeded=True))
            self.invoked[path] += 1

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed in the middle of a request is what this is for."""


class Lab:
    """One sensor. Its manifest names its actions' paths at the sink after its triggers."""

    def __init__(self, bus: Bus, manifest: Path, sink: Sink) -> None:
        self.bus = bus
        self.sink = sink
        sensor = Sensor.load(manifest)
        self.plan = sensor.blueprint(bus.name).plan
        self.topology = ensure_sensor_topics(bus.cluster, self.plan.name)
        self.published = 0
        self.mishaps: list[Mishap] = []
        self._manifest = manifest
        self._replicas: dict[int, Popen[bytes]] = {}
        self._reader = bus.cluster.reader()
        self._actions: list[Record] = []
        for partition in range(self.topology.action_partitions):
            self._reader.open(self.plan.name.topic(Kind.ACTION), partition, 0)

    # --- replicas ---------------------------------------------------------------------------------------------------

    def start_replica(self, slot: int) -> None:
        bus = ["--bootstrap-servers", self.bus.bootstrap_servers, "--namespace", self.bus.name.namespace]
        options = ["--slot", str(slot), *bus, "--log-format", "json"]
        command = [executable, "-m", "eventbus", "run", str(self._manifest), *options]
        with self._log(slot).open("ab") as log:
            self._replicas[slot] = Popen(command, stdin=DEVNULL, stdout=log, stderr=log, env=os.environ)

    def kill_replica(self, slot: int) -> None:
        """SIGKILL: no farewell, no clean-up, in the middle of whatever it was doing."""
        self._replicas[slot].kill()
        self._replicas[slot].wait()
        now = SystemClock().now_ms()
        self.mishaps.append(Mishap(str(slot), now, now, "SIGKILL"))

    @contextmanager
    def without_brokers(self) -> Iterator[None]:
        """Around what happens to brokers: no replica can commit what it knows while they are away."""
        began = SystemClock().now_ms()
        yield
        now = SystemClock().now_ms()
        self.mishaps += [Mishap(str(slot), began, now, "brokers away") for slot in self._replicas]

    def stop(self) -> None:
        for replica in self._replicas.values():
            replica.terminate()
        for replica in self._replicas.values():
            replica.wait()

    def check_alive(self) -> None:
        """Raise if a replica has ended by itself."""
        for slot, replica in self._replicas.items():
            if replica.poll() not in (None, _KILLED):
                raise FatalError(f"replica {slot} has ended: {last_words(self._log(slot))}")

    def _log(self, slot: int) -> Path:
        return self._manifest.with_name(f"replica-{slot}.log")

    # --- what happens -----------------------------------------------------------------------------------------------

    def publish(self, events: Sequence[Event]) -> None:
        self.bus.publish_all(events)
        self.published += len(events)

    def started(self) -> bool:
        """Every partition of the event topic has an owner that will miss nothing from now on."""
        self.check_alive()
        return None not in self._committed(Stage.MATCH).values()

    def actions(self) -> list[Record]:
        """All actions that were written so far."""
        while records := self._reader.read(10_000, 0.02):
            self._actions += records
        return self._actions

    def fired(self) -> Counter[str]:
        return Counter(action_fact(record).trigger for record in self.actions())

    def held(self) -> list[TriggerState]:
        return held_state(self.bus.cluster, self.plan, self.topology, SystemClock())

    def finished(self) -> bool:
        """Every action that was written so far is dealt with."""
        ends = {record.partition: record.offset + 1 for record in self.actions()}
        committed = self._committed(Stage.INVOKE)
        return all((commit := committed[p]) is not None and commit.offset >= end for p, end in ends.items())

    def _committed(self, stage: Stage) -> dict[int, Committed | None]:
        name = self.plan.name
        return stable_commits(self.bus.cluster, name.group(stage), name.input_topic(stage), SystemClock())

    # --- verdict ----------------------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Judge everything that the sensor has left behind."""
        return judge(self.evidence())

    def evidence(self) -> Evidence:
        name, topology = self.plan.name, self.topology
        held = {
            (state.trigger, state.key, event.dependency, Source(event.partition, event.offset, event.since))
            for state in self.held()
            for event in state.held
        }
        commits = [
            SeenCommit(stage, partition, commit.offset, commit.metadata)
            for stage in Stage
            for partition, commit in self._committed(stage).items()
            if commit is not None
        ]
        return Evidence(
            plans={self.plan.owner.generation: self.plan},
            events=self._records(name.event_topic, topology.event_partitions),
            triggers=self._records(name.topic(Kind.TRIGGER), topology.trigger_partitions),
            actions=self.actions(),
            invocations=self._records(name.topic(Kind.INVOCATION), topology.invocation_partitions),
            letters=self._records(name.topic(Kind.DLQ), topology.dlq_partitions),
            commits=commits,
            held=held,
            calls=self.sink.calls,
            mishaps=[*self.mishaps, *(each for slot in self._replicas for each in own_mishaps(slot, self._log(slot)))],
            horizon=HORIZON_RECORDS,
        )

    def _records(self, topic: str, partitions: int) -> list[Record]:
        reader = self.bus.cluster.reader()
        try:
            return [
                record
                for partition in range(partitions)
                for record in read_range(reader, topic, partition, start=0, end=None, clock=SystemClock())
            ]
        finally:
            reader.close()
