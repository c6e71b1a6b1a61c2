"""A storm whose replicas are pods: a namespace with controllers, a broker that pods reach, and the resources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from kubernetes import client, config

from e2e.chaos.manifest import dependencies
from e2e.chaos.sink import Sink
from e2e.chaos.storm import Scene
from e2e.cluster import Cluster
from e2e.installation import Kubectl, installed
from e2e.podchaos.deletions import Deletions, Options
from e2e.podchaos.pods import Pods
from e2e.podchaos.resources import CLOCK, RECEIVER, SENSOR, Resources
from e2e.podchaos.senders import Senders
from e2e.replicated import wait_until
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from sensors.sensor import Sensor

_CLOCKS = 3
_RECEIVERS = 2
_PATIENCE = 120.0


class Cast(NamedTuple):
    """Who is asked when it is over."""

    pods: Pods
    senders: Senders


@contextmanager
def scene_of_pods(options: Options, cluster: Cluster, directory: Path) -> Iterator[tuple[Scene, Cast]]:
    """Everything is ready when it begins, and gone when it ends."""
    with ExitStack() as end:
        broker = end.enter_context(EmbeddedBroker(ephemeral=True, further=cluster.network.listener()))
        access = partial(config.new_client_from_config, str(cluster.kubeconfig))
        namespace = end.enter_context(_namespace(access()))
        resources = Resources(access(), namespace)
        connect = partial(Bus.connect, broker.bootstrap_servers, namespace=namespace)
        with connect() as bus:
            bus.ensure(options.replicas)
            name = bus.name
        pods = end.enter_context(Pods(access, namespace, directory, partial(resources.delete, "Sensor", SENSOR)))
        end.enter_context(installed(Kubectl(cluster.kubeconfig), "namespaced", namespace, directory / "overlay"))
        sink = Sink(cluster.network.address)
        names = dependencies(options.dependencies)
        resources.create_bus(cluster.network.bootstrap_servers(broker))
        resources.create_sensor(names, options.replicas, sink.url)
        resources.create_clock(_CLOCKS)
        resources.create_receiver(names, _RECEIVERS)
        for kind, each in (("Sensor", SENSOR), ("EventSource", CLOCK), ("EventSource", RECEIVER)):
            wait_until(partial(resources.is_ready, kind, each), f"the {kind} `{each}` is not ready", _PATIENCE)
        mounted = directory / "sensor.json"
        mounted.write_text(resources.sensor_as_mounted())
        plan = Sensor.load(mounted).blueprint(name).plan
        senders = Senders(names, options.seed, partial(pods.of, RECEIVER))
        deletions = Deletions(options, pods, resources, senders)
        yield Scene(connect, plan, names, sink, pods, deletions.rage), Cast(pods, senders)


@contextmanager
def _namespace(api: Any) -> Iterator[str]:
    core, name = client.CoreV1Api(api), f"podchaos-{uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name}})  # type: ignore[arg-type]
    try:
        yield name
    finally:
        core.delete_namespace(name)
