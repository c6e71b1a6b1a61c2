"""A process that contends for a lease and says, line by line, when it led: `moment term` on the machine's clock.

It looks at its term before and after it reads the clock: if that is the same, it has led at this moment, even if the
process was stopped just before or after. The line `lost` follows when a term is over by no wish of its own. The line
`ready` comes first of all, when it has seen the lease: one that has not yet would not know that it was deleted.
"""

from __future__ import annotations

import sys
import time

from eventsources.election.elector import Elector
from eventsources.election.kubernetes import KubernetesLeases
from eventsources.election.lease import Timings
from eventsources.election.ports import Conflict, Gone, Record, Seen, Unreachable
from sensors.sensor import stop_signals

_INTERVAL_SECONDS = 0.005


class _Observed(KubernetesLeases):
    _ready = False

    def get(self, timeout: float) -> Seen | Gone | Unreachable:
        answer = super().get(timeout)
        self._tell(answer)
        return answer

    def create(self, record: Record, timeout: float) -> Seen | Conflict | Unreachable:
        answer = super().create(record, timeout)
        self._tell(answer)
        return answer

    def _tell(self, answer: object) -> None:
        if isinstance(answer, Seen) and not self._ready:
            self._ready = True
            _say("ready")


def main(name: str, namespace: str, lease: str, renew_deadline: str, retry: str) -> None:
    timings = Timings(int(lease), float(renew_deadline), float(retry))
    with stop_signals() as stop:
        elector = Elector(_Observed(f"eventsource-{name}", namespace), timings, on_lost=lambda _: _say("lost"))
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
