"""A process that contends for a lease and says, line by line, when it led: `moment term` on the machine's clock.

It looks at its term before and after it reads the clock: if that is the same, it has led at this moment, even if the
process was stopped just before or after. The line `lost` follows when a term is over by no wish of its own.
"""

from __future__ import annotations

import sys
import time

from eventsources.election.elector import Elector
from eventsources.election.kubernetes import KubernetesLeases
from eventsources.election.lease import Timings
from sensors.sensor import stop_signals

_INTERVAL_SECONDS = 0.005


def main(name: str, namespace: str, lease: str, renew_deadline: str, retry: str) -> None:
    timings = Timings(int(lease), float(renew_deadline), float(retry))
    with stop_signals() as stop:
        elector = Elector(KubernetesLeases(f"eventsource-{name}", namespace), timings, on_lost=lambda _: _say("lost"))
        _say("ready")
        while elector.wait_until_leading(stop) is not None:
            while elector.leading and not stop.wait(_INTERVAL_SECONDS):
                before, moment, after = elector.term, time.monotonic(), elector.term
                if before is not None and before == after:
                    _say(f"{moment!r} {before}")
        elector.close()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
