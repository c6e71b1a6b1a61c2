"""The pods of a namespace: a watch follows them, what they say is written down, and so is what was done to them.

A pod that is deleted by force is gone from the cluster at once, but not from its node: there it is told to stop, and
may run on beside the one that takes its place. One whose node loses power is told nothing: so half of them are killed,
too. The mishap of a pod lasts until it says nothing any more, be its successor at work by then or not. To be told to
stop when there is nothing left to do is no mishap.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from e2e.chaos.evidence import now_ms
from e2e.podchaos.resources import CLOCK, CONTROLLER, RECEIVER, SENSOR
from eventbus.controller.crds import GROUP
from sensors.audit.invocations import Mishap

DELETED = "deleted by force"
KILLED = "deleted by force and killed"
_CALLED = {SENSOR: "sensor pod", CLOCK: "calendar leader", RECEIVER: "webhook pod", CONTROLLER: "controller pod"}
_NAME = "app.kubernetes.io/name"
_INDEX = "apps.kubernetes.io/pod-index"
_WATCH_SECONDS = 5
_STOP_SECONDS = 90.0
_LOOK_SECONDS = 0.2


class Pod:
    """From the first time that it was seen."""

    def __init__(self, uid: str, name: str, labels: dict[str, str]) -> None:
        self.uid = uid
        self.name = name
        self.owner = labels.get(f"{GROUP}/sensor") or labels.get(f"{GROUP}/eventsource") or labels[_NAME]
        """The name of the Sensor, the EventSource or the Deployment of the controller."""
        self.slot = int(labels[_INDEX]) if self.owner == SENSOR else None
        self.address: str | None = None
        self.ready_ms: int | None = None
        self.deleted_ms: int | None = None
        """When somebody asked for it."""
        self.doom = DELETED
        self.listed = True
        self.ended_ms: int | None = None
        """When it said nothing any more."""
        self.restarts = 0
        self.follower: threading.Thread | None = None

    @property
    def untouched(self) -> bool:
        return self.listed and self.deleted_ms is None

    @property
    def called(self) -> str:
        """As the report counts it."""
        return f"{_CALLED[self.owner]} {self.doom}"


class Pods:
    """A fleet for a storm (`Replicas`): the pods of one sensor, and beside them all others of its namespace."""

    def __init__(self, connect: Callable[[], Any], namespace: str, directory: Path, retire: Callable[[], None]) -> None:
        """`retire` deletes the Sensor."""
        self.mishaps: list[Mishap] = []
        self.faults: Counter[str] = Counter()
        self.unexplained: list[str] = []
        self._connect = connect
        self._core: Any = client.CoreV1Api(connect())
        self._namespace = namespace
        self._directory = directory
        self._retire = retire
        self._pods: dict[str, Pod] = {}
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="pods", daemon=True)
        self._watcher.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._watcher.join()

    # --- what a storm asks ------------------------------------------------------------------------------------------

    def running(self) -> list[Pod]:
        """Those of the sensor that are ready."""
        return [pod for pod in self.untouched(SENSOR) if pod.ready_ms is not None]

    def logs(self) -> dict[int, Path]:
        return {pod.slot: self._log(pod) for pod in self.known() if pod.slot is not None and pod.follower is not None}

    async def stop(self) -> None:
        """As an operator does: without its Sensor, no pod stays."""
        await asyncio.to_thread(self._retire)
        await self.until_ended(SENSOR)
        self.mishaps += self._account()
        self.unexplained += [f"{pod.name} was restarted {pod.restarts} times" for pod in self.known() if pod.restarts]

    # --- what else is asked -----------------------------------------------------------------------------------------

    def known(self) -> list[Pod]:
        return list(self._pods.values())

    def of(self, owner: str) -> list[Pod]:
        return [pod for pod in self.known() if pod.owner == owner]

    def untouched(self, owner: str) -> list[Pod]:
        return [pod for pod in self.of(owner) if pod.untouched]

    def delete(self, pod: Pod, *, killed: bool) -> None:
        """By force. The cluster does not wait for its end."""
        pod.deleted_ms, pod.doom = now_ms(), KILLED if killed else DELETED
        with suppress(client.ApiException):  # it is gone already
            self._core.delete_namespaced_pod(pod.name, self._namespace, grace_period_seconds=0)
        if killed:
            _kill(pod)
        self.faults[pod.called] += 1

    def deletions(self) -> int:
        """Of the sensor's pods."""
        return sum(pod.deleted_ms is not None for pod in self.of(SENSOR))

    def deletions_at_work(self) -> int:
        """Of the sensor's pods that were ready then."""
        return sum(
            pod.ready_ms is not None and pod.deleted_ms is not None and pod.ready_ms <= pod.deleted_ms
            for pod in self.of(SENSOR)
        )

    async def until_ended(self, owner: str) -> None:
        """What the pods of a resource must do that was deleted."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                while any(pod.listed or pod.ended_ms is None for pod in self.of(owner)):
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            self.unexplained.append(f"pods run {_STOP_SECONDS:g} s after `{owner}` was deleted")

    # --- how it comes to know ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """A watch ends now and then. What was missed in between a list tells."""
        core: Any = client.CoreV1Api(self._connect())
        while not self._closed.is_set():
            with suppress(client.ApiException, HTTPError):
                found = core.list_namespaced_pod(self._namespace)
                for each in found.items:
                    self._see(each)
                there = {each.metadata.uid for each in found.items}
                for pod in self.known():
                    if pod.uid not in there:
                        _unlist(pod)
                self._watch_from(core, found.metadata.resource_version)

    def _watch_from(self, core: Any, version: str) -> None:
        changes: Any = watch.Watch()  # type: ignore[no-untyped-call]
        for change in changes.stream(
            core.list_namespaced_pod,
            self._namespace,
            resource_version=version,
            timeout_seconds=_WATCH_SECONDS,
        ):
            pod = self._see(change["object"])
            if change["type"] == "DELETED":
                _unlist(pod)

    def _see(self, seen: Any) -> Pod:
        uid = seen.metadata.uid
        pod = self._pods.get(uid) or self._pods.setdefault(uid, Pod(uid, seen.metadata.name, seen.metadata.labels))
        pod.address = seen.status.pod_ip or pod.address
        statuses = seen.status.container_statuses or ()
        pod.restarts = max([pod.restarts, *(each.restart_count for each in statuses)])
        if pod.ready_ms is None and any(each.ready for each in statuses):
            pod.ready_ms = now_ms()
        if pod.follower is None and pod.listed and any(each.state.running for each in statuses):
            pod.follower = threading.Thread(target=self._follow, args=(pod,), name=pod.name, daemon=True)
            pod.follower.start()
        return pod

    def _follow(self, pod: Pod) -> None:
        core: Any = client.CoreV1Api(self._connect())
        with suppress(client.ApiException, HTTPError), self._log(pod).open("ab", buffering=0) as log:
            answer = core.read_namespaced_pod_log(pod.name, self._namespace, follow=True, _preload_content=False)
            rest = b""
            for portion in answer.stream(amt=None):
                *lines, rest = (rest + portion).split(b"\n")
                for line in lines:
                    log.write(line + b"\n")
        pod.ended_ms = now_ms()

    def _log(self, pod: Pod) -> Path:
        return self._directory / (f"{pod.name}.log" if pod.slot is None else f"sensor.{pod.slot}.log")

    # --- the account ------------------------------------------------------------------------------------------------

    def _account(self) -> Iterable[Mishap]:
        for pod in self.of(SENSOR):
            if pod.deleted_ms is not None:
                yield Mishap(str(pod.slot), pod.deleted_ms, pod.ended_ms or now_ms(), pod.called)


def _unlist(pod: Pod) -> None:
    """The cluster knows it no more."""
    pod.listed = False
    if pod.follower is None and pod.ended_ms is None:
        pod.ended_ms = now_ms()


def _kill(pod: Pod) -> None:
    """SIGKILL for every process of it: nodes of our own cluster are this machine."""
    for file in Path("/proc").glob("[0-9]*/cgroup"):
        with suppress(OSError):  # of those that have ended meanwhile
            if f"/pod{pod.uid}/" in file.read_text():
                os.kill(int(file.parent.name), signal.SIGKILL)
