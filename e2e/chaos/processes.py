"""A storm whose replicas are processes of this machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from e2e.chaos.brokers import Brokers
from e2e.chaos.faults import Faults, Rest
from e2e.chaos.fleet import Fleet
from e2e.chaos.manifest import dependencies, manifest
from e2e.chaos.sink import Sink
from e2e.chaos.storm import Options, Scene
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from sensors.sensor import Sensor


def processes(options: Options, broker: EmbeddedBroker, directory: Path) -> Scene:
    connect = partial(Bus.connect, broker.bootstrap_servers, namespace="chaos")
    names = dependencies(options.dependencies)
    file = directory / "sensor.yaml"
    sink = Sink()
    file.write_text(manifest(names, options.mode, sink.url))
    with connect() as bus:
        bus.ensure(options.partitions)
        plan = Sensor.load(file).blueprint(bus.name).plan
        fleet = Fleet(bus, file, rest=Rest(options.seed))
    faults = Faults(options.seed, fleet, sink, Brokers(broker), options.partitions)
    return Scene(connect, plan, names, sink, fleet, lambda _traffic: faults.rage(options.minutes * 60))
