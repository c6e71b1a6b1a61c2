"""How the pods of a workload are, from what Kubernetes says about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eventbus.controller.conditions import Condition

_HARMLESS = frozenset(("ContainerCreating", "PodInitializing"))


def health(pods: Sequence[Mapping[str, Any]], wanted: int, mount_failures: Mapping[str, str]) -> list[Condition]:
    """`Ready`: as many replicas as wanted take part. `Healthy`: nothing about any pod needs somebody's attention."""
    living = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    ready = sum(map(_is_ready, living))
    complaints = [text for pod in living for text in _complaints(pod, mount_failures)]
    if ready >= wanted:
        taking_part = Condition("Ready", True, "AllReplicasReady", f"{ready} of {wanted} replicas take part")
    else:
        message = "; ".join([f"{ready} of {wanted} replicas take part", *complaints])
        taking_part = Condition("Ready", False, "WaitingForReplicas", message)
    if complaints:
        return [taking_part, Condition("Healthy", False, "PodsInTrouble", "; ".join(complaints))]
    return [taking_part, Condition("Healthy", True, "NoComplaints")]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _complaints(pod: Mapping[str, Any], mount_failures: Mapping[str, str]) -> Iterator[str]:
    name = pod["metadata"]["name"]
    for each in pod.get("status", {}).get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            yield f"{name} cannot be scheduled: {each.get('message', '')}"
    waits = False
    for container in pod.get("status", {}).get("containerStatuses") or ():
        waiting = container.get("state", {}).get("waiting") or {}
        waits = waits or bool(waiting)
        if waiting and waiting.get("reason") not in _HARMLESS:
            yield f"{name} waits: {waiting.get('reason')} {waiting.get('message', '')}{_last_words(container)}".strip()
    if waits and name in mount_failures:
        yield f"{name} waits: {mount_failures[name]}"


def _last_words(container: Mapping[str, Any]) -> str:
    """What it said before it ended, which tells more than that it did."""
    ended = container.get("lastState", {}).get("terminated") or {}
    message = " ".join(str(ended.get("message") or "").split())
    return f"; it ended with {ended.get('exitCode')}: {message}" if message else ""
