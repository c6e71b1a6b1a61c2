"""`eventbus run`: sensors in the foreground, as a container would run them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from eventbus.cli.logs import LogFormat
from eventbus.cli.options import BootstrapServers, BusFile, BusOption, Manifests, Namespace, Verbose

if TYPE_CHECKING:
    from eventbus.bus import Bus
    from eventbus.cli.manifests import Loaded
    from sensors.runner.replica import Replica, Settings

_REACH_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_INTERRUPTED = 130

log = logging.getLogger("eventbus.run")


def run(
    files: Manifests,
    *,
    slot: Annotated[
        int | None,
        typer.Option(min=0, help="Which replica this is, from 0.", show_default="a free one on this machine"),
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option(min=1, help="Replace metadata.generation of all manifests: of two, the higher takes over."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Partitions of the sensors' topics.", show_default="as many as the event topic has"),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many actions of a sensor run at a time.")] = 32,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="How long running actions may take to finish on SIGTERM.")
    ] = 20.0,
    health_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve /healthz, /readyz and /metrics on this port of all interfaces; 0 takes a free one.",
            show_default="no server",
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    log_format: Annotated[LogFormat, typer.Option(help="`json` is one object per line.")] = LogFormat.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run sensors until SIGTERM or Ctrl-C, then finish what is under way. More replicas share the work."""
    from eventbus.cli.connection import connect
    from eventbus.cli.logs import set_up_logging
    from eventbus.cli.manifests import load_sensors, refuse_collisions
    from eventbus.names import BusName
    from sensors.runner.replica import Settings

    set_up_logging(logging.DEBUG if verbose else logging.INFO, log_format)
    sensors = load_sensors(files, BusName(namespace, bus), generation)
    refuse_collisions(sensors)
    for loaded in sensors:
        for warning in loaded.manifest.warnings:
            log.warning("%s", warning)
    settings = Settings(concurrency=concurrency, drain_seconds=drain_seconds)
    replicas: list[Replica] = []
    with (
        connect(bootstrap_servers, bus_file, namespace, bus, verbose=False) as home,
        _health_server(replicas, health_port),
    ):
        try:
            for replica in _make_replicas(home, sensors, None if slot is None else str(slot), partitions, settings):
                replicas.append(replica)  # noqa: PERF402 - those that were made must be stopped if one cannot be
            _run_until_stopped(replicas)
        finally:
            _stop(replicas, drain_seconds)
    failure = next((replica.failure for replica in replicas if replica.failure is not None), None)
    if failure is not None:
        raise failure
    log.info("stopped")


def _make_replicas(
    home: Bus, sensors: Sequence[Loaded], slot: str | None, partitions: int | None, settings: Settings
) -> Iterator[Replica]:
    """One of each sensor. Brokers that do not answer are waited for, but not for ever."""
    from functools import partial

    from eventbus.bus import Bus
    from eventbus.cli.connection import insist
    from eventbus.clock import Deadline, SystemClock

    deadline = Deadline(SystemClock(), _REACH_SECONDS)
    for loaded in sensors:
        bus = Bus(home.cluster, loaded.name.bus, bootstrap_servers=home.bootstrap_servers)
        yield insist(partial(loaded.sensor.start, bus, slot=slot, partitions=partitions, settings=settings), deadline)


@contextmanager
def _health_server(replicas: Sequence[Replica], port: int | None) -> Iterator[None]:
    """It answers from before the first replica is made until the last one has ended."""
    from sensors.health import HealthServer

    if port is None:
        yield
        return
    with HealthServer(replicas, port) as server:
        log.info("health and metrics: http://127.0.0.1:%d/healthz, /readyz, /metrics", server.port)
        yield


def _run_until_stopped(replicas: Sequence[Replica]) -> None:
    """Until a signal comes or one of them fails."""
    from sensors.runner.tuning import relax_garbage_collection
    from sensors.sensor import stop_signals

    relax_garbage_collection()
    with stop_signals() as stopped:
        for replica in replicas:
            replica.start()
        unready = list(replicas)
        while not stopped.wait(_LOOK_SECONDS) and all(replica.failure is None for replica in replicas):
            for replica in [replica for replica in unready if replica.ready()]:
                log.info("sensor %s is ready, slot %s", replica.name, replica.slot)
                unready.remove(replica)


def _stop(replicas: Sequence[Replica], drain_seconds: float) -> None:
    """All at once, so that they share the time they have. A second Ctrl-C does not wait for them."""
    from eventbus.errors import EventBusError

    if not replicas:
        return

    def stop(replica: Replica) -> None:
        with suppress(EventBusError):  # it stays in `Replica.failure`
            replica.stop()

    threads = [threading.Thread(target=stop, args=(replica,), daemon=True) for replica in replicas]
    try:
        log.info("stopping; actions that run have %g s to finish", drain_seconds)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        log.warning("stopped without waiting")
        os._exit(_INTERRUPTED)  # as after a crash: whatever still runs must not see its surroundings vanish
