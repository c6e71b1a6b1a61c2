"""The pods of a namespace: a watch follows them, what they say is written down, and so is what was done to them.

A pod that is deleted by force is gone from the cluster at once, but not from its node: it may run on beside the one
that takes its place. Its mishap lasts until it has ended *and* its successor is ready.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from e2e.chaos.evidence import now_ms
from eventbus.controller.crds import GROUP
from eventbus.controller.pods import MANAGED_BY
from sensors.audit.invocations import Call, Mishap

DELETED = "pod deleted by force"
_INDEX = "apps.kubernetes.io/pod-index"
_WATCH_SECONDS = 30
_STOP_SECONDS = 90.0
_LOOK_SECONDS = 0.2


class Pod:
    """From the first time that it was seen."""

    def __init__(self, name: str, labels: dict[str, str]) -> None:
        self.name = name
        self.of_sensor = f"{GROUP}/sensor" in labels
        self.slot = int(labels[_INDEX]) if self.of_sensor else None
        self.address: str | None = None
        self.ready_ms: int | None = None
        self.deleted_ms: int | None = None
        """When somebody asked for it."""
        self.listed = True
        self.ended_ms: int | None = None
        """When it said nothing any more."""
        self.restarts = 0
        self.follower: threading.Thread | None = None

    @property
    def untouched(self) -> bool:
        return self.listed and self.deleted_ms is None


class Pods:
    """A fleet for a storm (`Replicas`): the pods of one sensor, and beside them those of an event source."""

    def __init__(self, connect: Callable[[], Any], namespace: str, directory: Path) -> None:
        self.mishaps: list[Mishap] = []
        self.faults: Counter[str] = Counter()
        self.unexplained: list[str] = []
        self._connect = connect
        self._core: Any = client.CoreV1Api(connect())
        self._namespace = namespace
        self._directory = directory
        self._pods: dict[str, Pod] = {}
        self._stopping_ms: int | None = None
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="pods", daemon=True)
        self._watcher.start()

    # --- what a storm asks ------------------------------------------------------------------------------------------

    def running(self) -> list[Pod]:
        """Those of the sensor that are ready."""
        return [pod for pod in self.known() if pod.of_sensor and pod.untouched and pod.ready_ms is not None]

    def logs(self) -> dict[int, Path]:
        return {pod.slot: self._log(pod) for pod in self.known() if pod.slot is not None and pod.follower is not None}

    async def stop(self) -> None:
        """When the Sensor has been deleted: returns when its pods have ended."""
        self._stopping_ms = now_ms()
        await self.until(lambda: not self._unfinished(), "pods have not ended after their Sensor was deleted")
        self._closed.set()
        self.mishaps += self._account()
        self.unexplained += [f"{pod.name} was restarted {pod.restarts} times" for pod in self.known() if pod.restarts]

    # --- what else is asked -----------------------------------------------------------------------------------------

    def known(self) -> list[Pod]:
        return list(self._pods.values())

    def clock(self) -> list[Pod]:
        return [pod for pod in self.known() if not pod.of_sensor and pod.untouched]

    def delete(self, pod: Pod) -> None:
        """By force: no farewell that the cluster would wait for."""
        pod.deleted_ms = now_ms()
        with suppress(client.ApiException):  # it is gone already
            self._core.delete_namespaced_pod(pod.name, self._namespace, grace_period_seconds=0)
        self.faults[DELETED if pod.of_sensor else "leader deleted by force"] += 1

    async def until(self, reached: Callable[[], bool], complaint: str) -> bool:
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                while not reached():
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            self.unexplained.append(f"{complaint} within {_STOP_SECONDS:g} s")
            return False
        return True

    def attributed(self, calls: Iterable[Call]) -> list[Call]:
        """Calls with the slots of the pods that have called, instead of their addresses."""
        slots: defaultdict[str, set[int]] = defaultdict(set)
        for pod in self.known():
            if pod.address is not None and pod.slot is not None:
                slots[pod.address].add(pod.slot)
        for address, had in slots.items():
            if len(had) > 1:
                self.unexplained.append(f"{address} was that of several slots: it cannot be told who has called")
        known = {address: str(min(had)) for address, had in slots.items()}
        return [msgspec.structs.replace(call, replica=known.get(call.replica, call.replica)) for call in calls]

    # --- how it comes to know ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        core: Any = client.CoreV1Api(self._connect())
        while not self._closed.is_set():
            with suppress(client.ApiException, HTTPError):
                for change in watch.Watch().stream(
                    core.list_namespaced_pod, self._namespace, label_selector=MANAGED_BY, timeout_seconds=_WATCH_SECONDS
                ):
                    self._see(change["type"], change["object"])

    def _see(self, kind: str, seen: Any) -> None:
        uid = seen.metadata.uid
        pod = self._pods.get(uid) or self._pods.setdefault(uid, Pod(seen.metadata.name, seen.metadata.labels))
        pod.address = seen.status.pod_ip or pod.address
        if kind == "DELETED":
            pod.listed = False
            if pod.follower is None:
                pod.ended_ms = now_ms()
            return
        statuses = seen.status.container_statuses or ()
        pod.restarts = max([pod.restarts, *(each.restart_count for each in statuses)])
        if pod.ready_ms is None and any(each.ready for each in statuses):
            pod.ready_ms = now_ms()
        if pod.follower is None and any(each.state.running for each in statuses):
            pod.follower = threading.Thread(target=self._follow, args=(pod,), name=pod.name, daemon=True)
            pod.follower.start()

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
        return self._directory / (f"sensor.{pod.slot}.log" if pod.of_sensor else f"{pod.name}.log")

    # --- the account ------------------------------------------------------------------------------------------------

    def _unfinished(self) -> list[Pod]:
        return [pod for pod in self.known() if pod.listed or pod.ended_ms is None]

    def _account(self) -> Iterable[Mishap]:
        now = now_ms()
        of_sensor = [pod for pod in self.known() if pod.of_sensor]
        for pod in of_sensor:
            ended = pod.ended_ms or now
            if pod.deleted_ms is None:
                yield Mishap(str(pod.slot), self._stopping_ms or now, ended, "SIGTERM")
                continue
            ready = [each.ready_ms for each in of_sensor if each.slot == pod.slot and each.ready_ms is not None]
            succeeded = min((moment for moment in ready if moment > pod.deleted_ms), default=now)
            yield Mishap(str(pod.slot), pod.deleted_ms, max(ended, succeeded), DELETED)
