"""What the verdict on deleted pods rests on: the account of ticks, and who has called."""

from __future__ import annotations

from e2e.podchaos.pods import DELETED, Pod, Pods
from e2e.podchaos.ticks import tick_findings
from sensors.audit.invocations import Call, Mishap

LABELS = {"eventbus.dev/sensor": "chaos", "apps.kubernetes.io/pod-index": "1"}


def pods(*known: Pod) -> Pods:
    made = Pods.__new__(Pods)
    made._pods = {pod.uid: pod for pod in known}
    made._stopping_ms = 90
    return made


def pod(uid: str, address: str, slot: str = "1") -> Pod:
    made = Pod(uid, f"chaos-sensor-{slot}", {**LABELS, "apps.kubernetes.io/pod-index": slot})
    made.address, made.ready_ms, made.ended_ms = address, 10, 100
    return made


def test_ticks_that_are_told_once_are_as_they_should_be() -> None:
    assert list(tick_findings([11, 10, 13, 12], 4)) == []


def test_ticks_that_are_lost_repeated_or_too_few_are_found() -> None:
    assert list(tick_findings([10, 12, 12], 2)) == ["the tick 11 is lost", "the tick 12 was told 2 times"]
    assert list(tick_findings([10], 2)) == ["the clock has ticked 1 times, and 2 are wanted"]
    assert list(tick_findings([], 1)) == ["the clock has ticked 0 times, and 1 are wanted"]


def test_a_call_is_that_of_the_slot_whose_pod_had_the_address() -> None:
    fleet = pods(pod("u1", "10.0.1.2"), pod("u2", "10.0.1.3"))
    calls = [Call("a1", address, 1, 2, True) for address in ("10.0.1.2", "10.0.1.3", "10.0.1.9")]
    assert [call.replica for call in fleet.attributed(calls)] == ["1", "1", "10.0.1.9"]
    assert fleet.mistaken() == []


def test_an_address_that_two_slots_have_had_tells_nothing() -> None:
    fleet = pods(pod("u1", "10.0.1.2"), pod("u2", "10.0.1.2", slot="2"))
    assert fleet.mistaken() == ["10.0.1.2 was that of the slots {1, 2}"]


def test_a_mishap_lasts_until_the_pod_says_nothing_any_more_whatever_its_successor_does() -> None:
    deleted, successor = pod("u1", "10.0.1.2"), pod("u2", "10.0.1.3")
    deleted.deleted_ms, deleted.doom, deleted.ended_ms = 20, DELETED, 25
    successor.ready_ms = 40
    mishaps = list(pods(deleted, successor)._account())
    assert mishaps == [Mishap("1", 20, 25, DELETED), Mishap("1", 90, 100, "SIGTERM")]
