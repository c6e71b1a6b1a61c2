"""Runs the sources of one EventSource: servers for those that are told, a thread for each that fetches.

What fails is started again, after a pause that grows and is never the same for two. Of sources that must run once, one
replica works: it is elected, and stops before another may begin. Should it not notice, its journal is closed to it.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import groupby
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Self, TypeAlias

from prometheus_client import CollectorRegistry

from eventbus.bus import Bus
from eventbus.clock import SystemClock
from eventbus.errors import ConfigError, EventBusError, MachineError
from eventbus.logfields import carrying, fields_logger, inheriting
from eventsources.base import Context, Endpoint, Identity, Source, SourceError, SourceSpec, Stop
from eventsources.delivery import ThroughJournal, ThroughSink
from eventsources.drafts import Drafts
from eventsources.election.ports import Election
from eventsources.journal import Journal
from eventsources.metrics import SourceMetrics
from eventsources.receiver.app import Receiver, Route
from eventsources.receiver.hooks import ForgeSpec
from eventsources.receiver.listening import ListeningSpec, ReceiverSpec
from eventsources.receiver.server import Server
from eventsources.registration.registrar import Registrar, Registration
from eventsources.sink import Sieve, Sink
from eventsources.sources import SOURCES
from eventsources.spec import EventSourceManifest
from sensors.actions.tls import load_chain, use_certificates

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_STEADY_SECONDS = 60.0
"""Who has worked for so long begins with the shortest pause again."""
_LOOK_SECONDS = 0.2

log = fields_logger("eventbus.source")


Elect: TypeAlias = Callable[[str], Election]
"""Takes part in the election of an EventSource, by its name."""


class SourceRunner:
    """One EventSource in this process."""

    slot = ""

    def __init__(self, manifest: EventSourceManifest, bus: Bus, elect: Elect, *, drain_seconds: float = 20.0) -> None:
        self.name = f"{bus.name.namespace}/{bus.name.bus}/{manifest.name}"
        self.metrics = SourceMetrics()
        self.failure: EventBusError | None = None
        self._bus = bus
        self._manifest = manifest
        self._stop = Flag()
        with self._logging():
            self._sink = Sink(bus, self.metrics)
        self._threads: list[Thread] = []
        self._servers: list[Server] = []
        self._election: Election | None = None
        try:
            with self._logging():
                self._prepare(elect, drain_seconds)
        except BaseException:
            self.stop()  # it has threads and sockets already
            raise

    def _prepare(self, elect: Elect, drain_seconds: float) -> None:
        endpoints: list[tuple[Endpoint, Route, ListeningSpec]] = []
        registrations: list[Registration] = []
        for identity, spec in self._manifest.identities():
            self.metrics.expect(identity)
            made = SOURCES[identity.kind].make(spec)
            if isinstance(made, Source):
                run = partial(self._drive, made, identity, spec)
                self._threads.append(Thread(target=inheriting(run), name=f"source-{identity}", daemon=True))
            elif isinstance(spec, ReceiverSpec):
                route = Route(made, identity, Sieve.of(spec), spec.listening.maxPayloadSize)
                endpoints.append((made, route, spec.listening))
            else:
                raise ConfigError(f"`{identity.kind}` makes neither a Source nor an Endpoint with a ReceiverSpec")
            if isinstance(spec, ForgeSpec) and spec.registers:
                removed = spec.deleteHookOnFinish
                registrations.append(Registration(identity, spec.api(), self.metrics, removed_at_end=removed))
        if registrations:
            registrar = Registrar(registrations, partial(elect, self._manifest.name), self._stop)
            look_after = inheriting(registrar.run)
            self._threads.append(Thread(target=look_after, name=f"hooks-{self._manifest.name}", daemon=True))
        endpoints.sort(key=lambda each: each[0].port)
        for port, group in groupby(endpoints, key=lambda each: each[0].port):
            self._servers.append(self._server(port, list(group), drain_seconds))
        if self._manifest.once:
            self._election = elect(self._manifest.name)

    @property
    def ports(self) -> list[int]:
        """Where it listens."""
        return [server.port for server in self._servers]

    def start(self) -> Self:
        for server in self._servers:
            server.start()
            with self._logging():
                log.info("%s listens on port %d", self.name, server.port)
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Take nothing more; what was taken is written."""
        self._stop.set()
        for server in self._servers:
            server.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._election is not None:
            with self._logging():
                self._election.close()
        self._sink.close()

    def _logging(self) -> AbstractContextManager[None]:
        """What is logged in it, and by threads that are made in it, carries the fields of the manifest."""
        return carrying(self._manifest.spec.loggingFields)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def title(self) -> str:
        return f"event source {self.name}"

    @property
    def registry(self) -> CollectorRegistry:
        return self.metrics.registry

    def ready(self) -> bool:
        return not self._stop.is_set()

    def waiting_for(self) -> list[str]:
        return [] if self.ready() else ["it is stopping"]

    def complaints(self) -> list[str]:
        return [] if self.failure is None else [str(self.failure)]

    # --- those that are told ----------------------------------------------------------------------------------------

    def _server(self, port: int, endpoints: Sequence[tuple[Endpoint, Route, ListeningSpec]], drain: float) -> Server:
        app = Receiver({endpoint.path: route for endpoint, route, _ in endpoints}, self._sink, self.metrics)
        return Server(app, port, _server_tls([spec for _, _, spec in endpoints]), drain)

    # --- those that fetch -------------------------------------------------------------------------------------------

    def _drive(self, source: Source, identity: Identity, spec: SourceSpec) -> None:
        try:
            self._keep_running(source, identity, spec)
        except Exception as error:  # a fault of the source's own, or of the election's: nobody is to think that it runs
            log.exception("%s has failed", identity)
            self.failure = MachineError(f"{identity} has failed: {type(error).__name__}: {error}")

    def _keep_running(self, source: Source, identity: Identity, spec: SourceSpec) -> None:
        pause = _FIRST_PAUSE
        clock = SystemClock()
        sieve = Sieve.of(spec)
        while self._may_run():
            began = clock.monotonic()
            try:
                with self._context(identity, sieve) as (context, stop):
                    source.run(context, stop)
            except (SourceError, EventBusError) as error:
                if clock.monotonic() - began > _STEADY_SECONDS:
                    pause = _FIRST_PAUSE
                self.metrics.restarted(identity)
                log.warning("%s: %s; it begins again in about %.1f s", identity, error, pause)
                self._stop.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that not all come back at once
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _may_run(self) -> bool:
        if self._election is None or self._stop.is_set():
            return not self._stop.is_set()
        self.metrics.leading(self._manifest.name, leads=False)
        leads = self._election.wait_until_leading(self._stop) is not None
        self.metrics.leading(self._manifest.name, leads=leads)
        return leads

    @contextmanager
    def _context(self, identity: Identity, sieve: Sieve) -> Iterator[tuple[Context, Stop]]:
        drafts = Drafts(self._bus, identity, sieve)
        count = partial(self.metrics.count, identity)
        if self._election is None:
            yield Context(identity, SystemClock(), ThroughSink(drafts, count, self._sink)), self._stop
            return
        journal = Journal(self._bus, identity)
        try:
            deliver = ThroughJournal(drafts, count, journal, self._election)
            yield Context(identity, SystemClock(), deliver, journal.remembered), _StopOrLoss(self._stop, self._election)
        finally:
            journal.close()


class _StopOrLoss(Flag):
    """Set when the process stops or another replica leads."""

    def __init__(self, stop: Flag, election: Election) -> None:
        super().__init__()
        self._stop = stop
        self._election = election

    def is_set(self) -> bool:
        return self._stop.is_set() or not self._election.leading

    def wait(self, timeout: float | None = None) -> bool:
        """In short steps: leadership ends by itself."""
        left = timeout
        while not self.is_set() and (left is None or left > 0):
            step = _LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS)
            self._stop.wait(step)
            left = None if left is None else left - step
        return self.is_set()


def _server_tls(specs: Sequence[ListeningSpec]) -> ssl.SSLContext | None:
    """All endpoints of a port share its certificate. Raises `ConfigError`."""
    wanted = {(spec.serverCertSecret, spec.serverKeySecret, spec.clientCaSecret) for spec in specs}
    if len(wanted) > 1:
        raise ConfigError(f"the endpoints of port {specs[0].port} must all name the same certificates")
    cert, key, authorities = wanted.pop()
    if cert is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    pem = f"{cert.read().reveal()}\n{key.read().reveal()}"
    use_certificates(f"secret `{cert.name}`", lambda: load_chain(context, pem))
    if authorities is not None:
        trusted = authorities.read().reveal()
        use_certificates(f"secret `{authorities.name}`", lambda: context.load_verify_locations(cadata=trusted))
        context.verify_mode = ssl.CERT_REQUIRED
    return context
