"""`make held-restart RECORDS=…`: what a restart reads after an event was held while many records passed it.

One trigger holds one event. Meanwhile a million records of another trigger go through the same partition of the trigger
topic; shortly before their end a third trigger gets an event to hold, so young that it is still in the log. Then the
replica is killed, and a new one counts every record that it reads until it is where the old one was.
Writes build/held.json, exits 1 if it reads more than is promised, or if a held event does not fire.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from e2e.chaos.dump import commits_of, dump
from e2e.chaos.fleet import ROOT
from e2e.replicated import wait_until
from eventbus import Bus, Event
from eventbus.broker import EmbeddedBroker
from eventbus.formats import action_fact
from eventbus.kafka import KafkaCluster
from eventbus.kafka.consumer import KafkaConsumer
from eventbus.kafka.fetched import Fetched
from eventbus.kafka.reader import KafkaReader
from eventbus.metadata import decode_join
from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import RebalanceListener, Record
from eventbus.topics import ensure_sensor_topics
from sensors.join import HORIZON_RECORDS
from sensors.runner.loop import MAX_BATCH
from sensors.sensor import Sensor

REPORT = Path("build/held.json")
LIMIT = HORIZON_RECORDS + MAX_BATCH
SENSOR = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata:
  name: held
spec:
  startFrom: earliest
  dependencies:
    - {name: x, eventSourceName: shop, eventName: x}
    - {name: y, eventSourceName: shop, eventName: y}
    - {name: r, eventSourceName: shop, eventName: r}
    - {name: s, eventSourceName: shop, eventName: s}
    - {name: p, eventSourceName: shop, eventName: p}
    - {name: q, eventSourceName: shop, eventName: q}
  triggers:
    - template: {name: patient, conditions: x && y, log: {}}
    - template: {name: recent, conditions: r && s, log: {}}
    - template: {name: busy, conditions: p && q, log: {}}
"""
_PORTION = 10_000
_YOUNG = HORIZON_RECORDS - 1000
"""For how many records the recent event is held: nearly as long as it may stay in the log."""
_PATIENCE = 1800.0
_SETTLE_SECONDS = 120.0


class HeldRestart(msgspec.Struct, frozen=True):
    """What a restart has read."""

    records_passed: int
    log_records_read: int
    log_records_allowed: int
    state_records_read: int
    state_records: int
    """All that compaction has left in the state topic."""
    seconds: float
    """From the start of the new replica on: the group waits up to 6 s for the old one."""
    fired: list[str]

    @property
    def as_promised(self) -> bool:
        bounded = self.log_records_read <= self.log_records_allowed and self.state_records_read <= self.state_records
        return bounded and self.fired == ["patient", "recent"]


class CountingCluster(KafkaCluster):
    """Counts what is read of the trigger topic below a position, and of the state topic."""

    def __init__(self, bootstrap_servers: str, name: SensorName, position: int) -> None:
        super().__init__(bootstrap_servers)
        self.name = name
        self.position = position
        self.log_records = 0
        self.state_records = 0

    def consumer(self, group: str, topic: str, listener: RebalanceListener) -> KafkaConsumer:
        consumer = _CountingConsumer(self._settings, self._admin, group, topic, listener)
        consumer.cluster = self
        return consumer

    def reader(self) -> KafkaReader:
        reader = _CountingReader(self._settings, self._admin)
        reader.cluster = self
        return reader


class _CountingConsumer(KafkaConsumer):
    cluster: CountingCluster

    def poll(self, max_records: int, timeout: float) -> Fetched:
        records = super().poll(max_records, timeout)
        if self._topic == self.cluster.name.topic(Kind.TRIGGER):
            self.cluster.log_records += sum(record.offset < self.cluster.position for record in records[:])
        return records


class _CountingReader(KafkaReader):
    cluster: CountingCluster

    def read(self, max_records: int, timeout: float) -> list[Record]:
        records = super().read(max_records, timeout)
        self.cluster.state_records += len(records)
        return records


def measure(bus: Bus, manifest: Path, records: int, console: Console) -> HeldRestart:
    name = Sensor.load(manifest).blueprint(bus.name).plan.name
    bus.ensure(1)
    ensure_sensor_topics(bus.cluster, name)
    with _killed_in_the_end(bus, manifest):
        bus.publish(_event("x"))
        _publish_busy(bus, records - _YOUNG, console)
        bus.publish(_event("r"))
        _publish_busy(bus, _YOUNG, console)
        wait_until(lambda: _joined(bus, name) >= records + 2, "the records have not passed", _PATIENCE)
        position = _joined(bus, name)
    cluster = CountingCluster(bus.bootstrap_servers, name, position)
    began = time.monotonic()
    with Sensor.load(manifest).start(Bus(cluster, bus.name), slot="0") as replica:
        replica.settle(_SETTLE_SECONDS)
        seconds = time.monotonic() - began
        log_records, state_records = cluster.log_records, cluster.state_records
        state = dump(bus, name.topic(Kind.STATE), 1)
        bus.publish(_event("y"), _event("s"))
        replica.settle(_SETTLE_SECONDS)
    cluster.close()
    return HeldRestart(
        records_passed=records,
        log_records_read=log_records,
        log_records_allowed=LIMIT,
        state_records_read=state_records,
        state_records=len(state),
        seconds=round(seconds, 1),
        fired=sorted(action_fact(record).trigger for record in dump(bus, name.topic(Kind.ACTION), 1)),
    )


def _publish_busy(bus: Bus, records: int, console: Console) -> None:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for portion in progress.track(range(0, records, _PORTION), description="publishing"):
            bus.publish_all(_event("p") for _ in range(min(_PORTION, records - portion)))


@contextmanager
def _killed_in_the_end(bus: Bus, manifest: Path) -> Iterator[None]:
    """A replica as a process of its own, in slot 0."""
    servers = ["--bootstrap-servers", bus.bootstrap_servers, "--namespace", bus.name.namespace]
    command = [sys.executable, "-m", "eventbus", "run", str(manifest), "--slot", "0", *servers]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Popen(command, stdin=DEVNULL, env=environment, cwd=ROOT) as replica:
        try:
            yield
        finally:
            replica.kill()


def _event(name: str) -> Event:
    return Event.new("shop", name, {})


def _joined(bus: Bus, name: SensorName) -> int:
    """Up to where the trigger topic is evaluated."""
    commit = commits_of(bus, name, Stage.JOIN)[0]
    return 0 if commit is None else decode_join(commit.offset, commit.metadata).position


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--records", type=int, default=1_000_000)
    options = arguments.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as directory, EmbeddedBroker(ephemeral=True) as broker:
        manifest = Path(directory) / "sensor.yaml"
        manifest.write_text(SENSOR)
        with Bus.connect(broker.bootstrap_servers, namespace="held") as bus:
            restart = measure(bus, manifest, options.records, console)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(msgspec.structs.asdict(restart), indent=2) + "\n")
    table = Table("", "", show_header=False)
    for key, value in msgspec.structs.asdict(restart).items():
        table.add_row(key, f"{value:,}" if isinstance(value, int | float) else str(value))
    console.print(table)
    sys.exit(not restart.as_promised)


if __name__ == "__main__":
    main()
