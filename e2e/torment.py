"""Kill −9, again and again, while events flow; then let the log speak."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from e2e.replicated import wait_until
from eventbus import Bus, Event
from sensors.lab import Lab, Sink

SENSOR = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata:
  name: tormented
spec:
  startFrom: earliest
  dependencies:
    - {name: a, eventSourceName: shop, eventName: a}
    - {name: b, eventSourceName: shop, eventName: b}
    - {name: c, eventSourceName: shop, eventName: c}
  triggers:
    - template: {name: both, conditions: a && b, http: {url: "URL/both"}}
      atLeastOnce: true
      retryStrategy: {steps: 20, duration: 100ms}
    - template: {name: all, conditions: a && b && c, http: {url: "URL/all"}}
    - template: {name: mixed, conditions: (a && b) || c, http: {url: "URL/mixed"}}
      atLeastOnce: true
      retryStrategy: {steps: 20, duration: 100ms}
    - template: {name: any, conditions: a || b || c, http: {url: "URL/any"}}
"""
_PATIENCE = 120.0


class Torment:
    """A lab, a seed, and as many events between two blows as the seed says."""

    def __init__(self, bus: Bus, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.sink = Sink()
        manifest = directory / "sensor.yaml"
        manifest.write_text(SENSOR.replace("URL", self.sink.url))
        self.lab = Lab(bus, manifest, self.sink)
        self._number = 0

    def start(self, replicas: int) -> None:
        for slot in range(replicas):
            self.lab.start_replica(slot)
        self._wait(self.lab.started, "the replicas have not started")

    def events(self, count: int) -> None:
        """Of three kinds and three keys, in small portions with small pauses, so that a blow can fall anywhere."""
        for _ in range(count):
            self._number += 1
            name, key = self.random.choice("abc"), self.random.choice("xyz")
            self.lab.publish([Event.new("shop", name, {"n": self._number}, id=f"e{self._number}", partitionkey=key)])
            time.sleep(self.random.random() * 0.01)

    def kill_and_restart(self, slot: int) -> None:
        self.lab.kill_replica(slot)
        self.events(self.random.randrange(30))
        self.lab.start_replica(slot)

    def settle(self) -> None:
        """Wait until nothing more happens: all expected actions are there and dealt with."""
        self._wait(lambda: self.lab.verdict().expected == len(self.lab.actions()), "actions are missing")
        self._wait(self.lab.finished, "actions are not dealt with")

    def close(self) -> None:
        self.lab.stop()
        self.sink.close()

    def _wait(self, condition: Callable[[], bool], complaint: str) -> None:
        def reached() -> bool:
            self.lab.check_alive()
            return condition()

        wait_until(reached, complaint, _PATIENCE)
