"""`eventbus run`: sensors and event sources in the foreground, as a container would run them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from eventbus.cli.logs import LogFormat
from eventbus.cli.options import BootstrapServers, BusFile, BusOption, HealthPort, Manifests, Namespace, Verbose

if TYPE_CHECKING:
    from eventbus.bus import Bus
    from eventbus.cli.manifests import Loaded, LoadedSource
    from eventsources.runner import SourceRunner
    from sensors.health import Part
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
    health_port: HealthPort = None,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    log_format: Annotated[LogFormat, typer.Option(help="`json` is one object per line.")] = LogFormat.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run sensors and event sources until SIGTERM or Ctrl-C, then finish what is under way.

    More replicas share the work; of event sources that must run once, one replica works.
    """
    from eventbus.cli.connection import connect
    from eventbus.cli.logs import set_up_logging
    from eventbus.cli.manifests import load_all, refuse_collisions, refuse_shared_ports
    from eventbus.names import BusName
    from sensors.runner.replica import Settings

    set_up_logging(logging.DEBUG if verbose else logging.INFO, log_format)
    sensors, sources = load_all(files, BusName(namespace, bus), generation)
    refuse_collisions(sensors)
    refuse_shared_ports(sources)
    manifests = [*(each.manifest for each in sensors), *(each.manifest for each in sources)]
    for warning in [warning for manifest in manifests for warning in manifest.warnings]:
        log.warning("%s", warning)
    settings = Settings(concurrency=concurrency, drain_seconds=drain_seconds)
    parts: list[Replica | SourceRunner] = []
    with (
        connect(bootstrap_servers, bus_file, namespace, bus, verbose=False) as home,
        health_server(parts, health_port),
    ):
        try:
            for replica in _make_replicas(home, sensors, None if slot is None else str(slot), partitions, settings):
                parts.append(replica)  # noqa: PERF402 - those that were made must be stopped if one cannot be
            for runner in _make_runners(home, sources, drain_seconds):
                parts.append(runner)  # noqa: PERF402 - as above
            _run_until_stopped(parts)
        finally:
            _stop(parts, drain_seconds)
    failure = next((part.failure for part in parts if part.failure is not None), None)
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


def _make_runners(home: Bus, sources: Sequence[LoadedSource], drain_seconds: float) -> Iterator[SourceRunner]:
    """After the sensors: so no event comes before there is somebody to match it."""
    from functools import partial

    from eventbus.bus import Bus
    from eventbus.cli.connection import insist
    from eventbus.clock import Deadline, SystemClock

    if not sources:
        return
    from eventsources.election import take_part
    from eventsources.runner import SourceRunner

    deadline = Deadline(SystemClock(), _REACH_SECONDS)
    for loaded in sources:
        bus = Bus(home.cluster, loaded.bus, bootstrap_servers=home.bootstrap_servers)
        elect = partial(take_part, namespace=loaded.bus.namespace)
        yield insist(partial(SourceRunner, loaded.manifest, bus, elect, drain_seconds=drain_seconds), deadline)


@contextmanager
def health_server(parts: Sequence[Part], port: int | None) -> Iterator[None]:
    """It answers from before the first replica is made until the last one has ended."""
    from sensors.health import HealthServer

    if port is None:
        yield
        return
    with HealthServer(parts, port) as server:
        log.info("health and metrics: http://127.0.0.1:%d/healthz, /readyz, /metrics", server.port)
        yield


def _run_until_stopped(parts: Sequence[Replica | SourceRunner]) -> None:
    """Until a signal comes or one of them fails."""
    from sensors.runner.tuning import relax_garbage_collection
    from sensors.sensor import stop_signals

    relax_garbage_collection()
    with stop_signals() as stopped:
        for part in parts:
            part.start()
        unready = list(parts)
        while not stopped.wait(_LOOK_SECONDS) and all(part.failure is None for part in parts):
            for part in [part for part in unready if part.ready()]:
                log.info("%s is ready%s", part.title, f", slot {part.slot}" if part.slot else "")
                unready.remove(part)


def _stop(parts: Sequence[Replica | SourceRunner], drain_seconds: float) -> None:
    """All at once, so that they share the time they have. A second Ctrl-C does not wait for them."""
    from eventbus.errors import EventBusError

    if not parts:
        return

    def stop(part: Replica | SourceRunner) -> None:
        with suppress(EventBusError):  # it stays in `failure`
            part.stop()

    threads = [threading.Thread(target=stop, args=(part,), daemon=True) for part in parts]
    try:
        log.info("stopping; actions that run have %g s to finish", drain_seconds)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        log.warning("stopped without waiting")
        os._exit(_INTERRUPTED)  # as after a crash: whatever still runs must not see its surroundings vanish
