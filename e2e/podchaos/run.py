"""A whole run: resources are applied, pods are deleted while events flow, the verdict is spoken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from kubernetes import client, config
from rich.console import Console

from e2e.chaos.evidence import keep
from e2e.chaos.manifest import dependencies
from e2e.chaos.report import Teller, summary
from e2e.chaos.sink import Sink
from e2e.chaos.storm import Aftermath, Scene, Storm
from e2e.chaos.verdict import verdict_on
from e2e.cluster import Cluster
from e2e.podchaos.controller import ControllerProcess
from e2e.podchaos.deletions import Deletions, Options
from e2e.podchaos.pods import Pods
from e2e.podchaos.resources import CLOCK, SENSOR, Resources
from e2e.podchaos.ticks import tick_findings, ticks_of
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from sensors.audit.verdict import Verdict
from sensors.sensor import Sensor

LEAST_TICKS = 20
_CLOCKS = 3
_PATIENCE = 120.0


def run(options: Options, cluster: Cluster, directory: Path, console: Console) -> tuple[dict[str, object], Verdict]:
    """The directory gets the logs of pods and controller and, where something is found, what helps to look at it."""
    began = time.monotonic()
    console.print(f"seed {options.seed}")
    namespace = f"podchaos-{uuid4().hex[:8]}"
    connect = partial(config.new_client_from_config, str(cluster.kubeconfig))
    core: Any = client.CoreV1Api(connect())
    core.create_namespace({"metadata": {"name": namespace}})
    controller = ControllerProcess(cluster.kubeconfig, namespace, directory / "controller.log")
    try:
        with EmbeddedBroker(ephemeral=True, further=cluster.network.listener()) as broker, Teller(console) as teller:
            play = _Play(options, cluster, broker, namespace, Resources(connect(), namespace), directory)
            aftermath, pods = asyncio.run(play.perform(controller, connect, teller))
    finally:
        controller.kill()
        core.delete_namespace(namespace)
    aftermath.evidence = msgspec.structs.replace(aftermath.evidence, calls=pods.attributed(aftermath.evidence.calls))
    ticks = ticks_of(aftermath.evidence.events)
    complaints = [*aftermath.unexplained, *tick_findings(ticks, LEAST_TICKS)]
    verdict = verdict_on(aftermath.evidence, aftermath.concurrent, complaints)
    if not verdict.clean:
        keep(aftermath.evidence, directory)
    report = {
        "seed": options.seed,
        **summary(aftermath, verdict),
        "ticks": len(ticks),
        "seconds": round(time.monotonic() - began, 1),
        "replicas": options.replicas,
        "dependencies": options.dependencies,
    }
    return report, verdict


class _Play:
    def __init__(
        self,
        options: Options,
        cluster: Cluster,
        broker: EmbeddedBroker,
        namespace: str,
        resources: Resources,
        directory: Path,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._broker = broker
        self._namespace = namespace
        self._resources = resources
        self._directory = directory

    async def perform(
        self, controller: ControllerProcess, connect: Callable[[], Any], teller: Teller
    ) -> tuple[Aftermath, Pods]:
        options, resources, address = self._options, self._resources, self._cluster.network.address
        names = dependencies(options.dependencies)
        sink = Sink(address)
        bus = partial(Bus.connect, self._broker.bootstrap_servers, namespace=self._namespace)
        with bus() as made:
            made.ensure(options.replicas)
        resources.define()
        await _until(resources.defined, "definitions")
        pods = _SensorPods(connect, self._namespace, self._directory, resources)
        resources.create_bus(f"{address}:{self._broker.nodes[0].address.port}")
        resources.create_sensor(names, options.replicas, sink.url)
        resources.create_clock(_CLOCKS)
        await _until(lambda: resources.conditions("Sensor", SENSOR).get("Ready") == "True", "a sensor that is ready")
        await _until(lambda: resources.conditions("EventSource", CLOCK).get("Ready") == "True", "a clock that is ready")
        mounted = self._directory / "sensor.json"
        mounted.write_text(resources.sensor_as_mounted())
        with bus() as made:
            plan = Sensor.load(mounted).blueprint(made.name).plan
        deletions = Deletions(options, pods, resources, controller)
        scene = Scene(bus, plan, names, sink, pods, deletions.rage)
        return await Storm(scene, rate=options.rate, seed=options.seed, tell=teller.tell).run(), pods


class _SensorPods(Pods):
    """Whose end is that of their Sensor."""

    def __init__(self, connect: Callable[[], Any], namespace: str, directory: Path, resources: Resources) -> None:
        super().__init__(connect, namespace, directory)
        self._resources = resources

    async def stop(self) -> None:
        self._resources.delete("Sensor", SENSOR)
        await super().stop()


async def _until(reached: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not await asyncio.to_thread(reached):
            await asyncio.sleep(0.2)
