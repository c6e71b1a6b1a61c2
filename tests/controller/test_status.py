"""What is said about a resource follows from its pods, and keeps the time since when it has been so."""

from __future__ import annotations

from typing import Any

from eventbus.controller.conditions import Condition, told
from eventbus.controller.health import health


def pod(name: str, *, ready: bool = True, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": {"name": name}, "status": {"conditions": conditions, **status}}


def waiting(reason: str, message: str = "", **more: Any) -> list[dict[str, Any]]:
    return [{"state": {"waiting": {"reason": reason, "message": message}}, **more}]


def test_all_take_part() -> None:
    assert health([pod("a"), pod("b")], 2, {}) == [
        Condition("Ready", True, "AllReplicasReady", "2 of 2 replicas take part"),
        Condition("Healthy", True, "NoComplaints"),
    ]


def test_one_that_ends_again_and_again_is_told_with_its_last_words() -> None:
    ended = {"terminated": {"exitCode": 2, "message": "error: the topic\nis wrong"}}
    crashed = pod("b", ready=False, containerStatuses=waiting("CrashLoopBackOff", "back-off", lastState=ended))
    ready, healthy = health([pod("a"), crashed], 2, {})
    complaint = "b waits: CrashLoopBackOff back-off; it ended with 2: error: the topic is wrong"
    assert (ready.status, ready.message) == (False, f"1 of 2 replicas take part; {complaint}")
    assert (healthy.status, healthy.message) == (False, complaint)


def test_a_missing_secret_is_named() -> None:
    creating = pod("a", ready=False, containerStatuses=waiting("ContainerCreating"))
    assert health([creating], 1, {})[1].status is True
    ready, healthy = health([creating], 1, {"a": 'secret "kafka" not found'})
    assert 'a waits: secret "kafka" not found' in ready.message
    assert healthy.status is False


def test_one_that_is_going_does_not_count() -> None:
    going = pod("a")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert health([going], 1, {})[0].message == "0 of 1 replicas take part"


def test_a_pod_without_a_place_is_told() -> None:
    nowhere = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    [_, healthy] = health([{"metadata": {"name": "a"}, "status": {"conditions": [nowhere]}}], 1, {})
    assert healthy.message == "a cannot be scheduled: 0/3 nodes are available"


def test_the_time_changes_only_with_the_status() -> None:
    [first] = told([Condition("Ready", False, "Waiting", "1 of 2")], (), 1, "t1")
    [second] = told([Condition("Ready", False, "Waiting", "0 of 2")], [first], 2, "t2")
    [third] = told([Condition("Ready", None, "Unsure")], [second], 2, "t3")
    assert [each["lastTransitionTime"] for each in (first, second, third)] == ["t1", "t1", "t3"]
    assert (second["message"], second["observedGeneration"]) == ("0 of 2", 2)
    assert third["status"] == "Unknown"
