"""Events that are sent to pods over HTTP, as by somebody who must not lose any: again, until a pod has taken it.

No Service is asked: pods are called by their addresses, also when they were deleted and may still run, as a proxy does
that has not heard of it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from e2e.chaos.traffic import Mixture
from e2e.podchaos.pods import Pod
from e2e.podchaos.resources import RECEIVER_PORT
from eventbus import Event
from eventbus.cloudevents import STRUCTURED_JSON, from_kafka, to_json
from eventbus.ports import Record

SHARE = 0.2
"""How many events are sent for each one that is published."""
_SENDERS = 4
_TIMEOUT = urllib3.Timeout(connect=1.0, read=5.0)
_LOOK_SECONDS = 0.05
_PATIENCE = 60.0
"""Within which some pod must have taken an event."""
_PREFIX = "sent-"
_TAKEN = 202


class Senders:
    """Several, each with one event at a time."""

    def __init__(self, names: Sequence[str], seed: int, pods: Callable[[], Sequence[Pod]]) -> None:
        """`names` are those of the events, and of the endpoints."""
        self.attempts: Counter[str] = Counter()
        """That may have arrived, by the id of the event."""
        self.refused: list[str] = []
        """What no pod has taken."""
        self._names = names
        self._seed = seed
        self._pods = pods
        self._wanted: Callable[[], float] = float
        self._begun = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(_SENDERS)]

    def start(self, wanted: Callable[[], float]) -> None:
        """`wanted` says how many events there should be by now."""
        self._wanted = wanted
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when all that was begun is taken."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, sender: int) -> None:
        dice = random.Random(f"{self._seed} {sender}")
        mixture = Mixture(self._names, dice)
        with urllib3.PoolManager(timeout=_TIMEOUT, retries=False) as pools:
            while not self._stopped.wait(_LOOK_SECONDS):
                number = self._next()
                if number is not None:
                    self._send(pools, mixture.event(number, _PREFIX), dice)

    def _next(self) -> int | None:
        with self._lock:
            if self._begun >= self._wanted():
                return None
            self._begun += 1
            return self._begun

    def _send(self, pools: urllib3.PoolManager, event: Event, dice: random.Random) -> None:
        self.attempts[event.id] = 0
        end = time.monotonic() + _PATIENCE
        while not self._taken(pools, event, dice):
            if time.monotonic() > end:
                self.refused.append(event.id)
                return
            time.sleep(_LOOK_SECONDS)

    def _taken(self, pools: urllib3.PoolManager, event: Event, dice: random.Random) -> bool:
        """By one of the pods that serve or have served until now."""
        pods = [pod for pod in self._pods() if pod.ready_ms is not None and pod.ended_ms is None]
        if not pods:
            return False
        url = f"http://{dice.choice(pods).address}:{RECEIVER_PORT}/{event.subject}"
        headers = {"Content-Type": STRUCTURED_JSON}
        try:
            answer = pools.request("POST", url, body=to_json(event), headers=headers)
        except (NewConnectionError, ConnectTimeoutError):
            return False
        except HTTPError:
            self.attempts[event.id] += 1
            return False
        self.attempts[event.id] += 1
        return answer.status == _TAKEN


def sent(events: Iterable[Record]) -> Counter[str]:
    """How often each event is on the bus that was sent to a pod."""
    ids = (from_kafka(record.headers, record.value).id for record in events)
    return Counter(id_ for id_ in ids if id_.startswith(_PREFIX))


def sending_findings(found: Counter[str], attempts: Counter[str], refused: Sequence[str]) -> Iterator[str]:
    """What was taken must be there, and nothing more often than it was sent."""
    yield from (f"no pod has taken the event {each} within {_PATIENCE:g} s" for each in refused)
    for each in sorted(found.keys() | attempts.keys()):
        copies, most = found[each], attempts[each]
        if copies > most:
            yield f"the event {each} is {copies} times on the bus, and was sent {most} times"
        if not copies and each not in refused:
            yield f"the event {each} was taken by a pod, and is lost"
