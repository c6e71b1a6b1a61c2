"""The receiver in a process of its own: `python -m e2e.bench_receiver.served [BOOTSTRAP_SERVERS]`.

Without brokers it has a log that takes everything at once, which is what the other one is measured against.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from eventbus import Bus
from eventbus.errors import LogError
from eventbus.memory.cluster import MemoryCluster
from eventbus.ports import Output, Position
from eventsources.runner import SourceRunner
from eventsources.spec import EVENT_SOURCES

PATH = "/orders"


class _Nothing:
    """A publisher that forgets."""

    def send(self, output: Output, done: Callable[[LogError | None, Position | None], None]) -> None:
        done(None, Position(output.topic, output.partition, 0))

    def serve(self, timeout: float) -> None:
        signal.sigtimedwait([], timeout)

    def flush(self, timeout: float) -> int:
        return 0

    def close(self) -> None:
        """Nothing is held here."""


class _Nowhere(MemoryCluster):
    def publisher(self) -> _Nothing:  # type: ignore[override]  # it is one, as far as the sink is concerned
        return _Nothing()


def main() -> None:
    bus = Bus.connect(sys.argv[1], namespace="bench-receiver") if sys.argv[1:] else Bus(_Nowhere())
    bus.ensure(4)
    manifest = EVENT_SOURCES.make(
        {
            "apiVersion": "eventbus.dev/v1alpha1",
            "kind": "EventSource",
            "metadata": {"name": "shop"},
            "spec": {"webhook": {"order": {"port": 0, "endpoint": PATH}}},
        }
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    runner = SourceRunner(manifest, bus, _nobody)
    runner.start()
    print(runner.ports[0], flush=True)
    signal.sigwait([signal.SIGTERM])
    runner.stop()
    bus.close()


def _nobody(name: str) -> NoReturn:
    raise AssertionError(f"nobody elects {name}")


if __name__ == "__main__":
    main()
