"""What the verdict on deleted pods rests on: the accounts of ticks and of what was sent, and who has called."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.podchaos.callers import Callers
from e2e.podchaos.pods import DELETED, Pod, Pods
from e2e.podchaos.senders import sending_findings
from e2e.podchaos.ticks import tick_findings
from sensors.audit.invocations import Call, Difference, Mishap
from sensors.audit.violations import Breach

LABELS = {"eventbus.dev/sensor": "chaos", "apps.kubernetes.io/pod-index": "1"}


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
    calls = [Call("a1", address, 1, 2, True) for address in ("10.0.1.2", "10.0.1.3", "10.0.1.9")]
    callers = Callers([pod("u1", "10.0.1.2"), pod("u2", "10.0.1.3")], calls)
    assert [call.replica for call in callers.attributed()] == ["1", "1", "10.0.1.9"]
    assert list(callers.mistaken()) == []


def test_an_address_that_two_slots_have_had_tells_nothing() -> None:
    callers = Callers([pod("u1", "10.0.1.2"), pod("u2", "10.0.1.2", slot="2")], [])
    assert list(callers.mistaken()) == ["10.0.1.2 was that of the slots {1, 2}"]


def deleted(uid: str, address: str, moment: int) -> Pod:
    made = pod(uid, address)
    made.deleted_ms, made.ended_ms = moment, moment + 5
    return made


@pytest.mark.parametrize(
    ("caller", "said", "found"),
    [
        ("10.0.1.2", [], 0),
        ("10.0.1.3", [], 1),
        ("10.0.1.3", [Mishap("1", 22, 26, "partitions lost")], 0),
        ("10.0.1.3", [Mishap("2", 22, 26, "partitions lost")], 1),
    ],
)
def test_a_pod_is_not_excused_by_the_end_of_another_one_of_its_slot(
    caller: str, said: list[Mishap], found: int
) -> None:
    gone, successor = deleted("u1", "10.0.1.2", 20), pod("u2", "10.0.1.3")
    calls = [Call("a1", caller, 22, 24, True), Call("a2", "10.0.1.2", 22, 24, True)]
    mishaps = [Mishap("1", 20, 25, gone.called), *said]
    violations = list(Callers([gone, successor], calls).unexcused([Difference("a1", "t", "1", gone.called)], mishaps))
    assert [(each.invariant, each.breach) for each in violations] == [("I7", Breach.UNEXPLAINED)] * found


def test_a_mishap_lasts_until_the_pod_says_nothing_any_more_whatever_its_successor_does() -> None:
    gone, successor = deleted("u1", "10.0.1.2", 20), pod("u2", "10.0.1.3")
    fleet = Pods.__new__(Pods)
    fleet._pods = {each.uid: each for each in (gone, successor)}
    assert list(fleet._account()) == [Mishap("1", 20, 25, f"sensor pod {DELETED}")]


def test_what_was_sent_is_there_and_not_more_often_than_it_was_sent() -> None:
    found, attempts = Counter({"sent-1": 1, "sent-2": 2}), Counter({"sent-1": 3, "sent-2": 2})
    assert list(sending_findings(found, attempts, [])) == []


def test_what_was_sent_and_is_lost_repeated_or_refused_is_found() -> None:
    found = Counter({"sent-2": 2, "sent-3": 1})
    attempts = Counter({"sent-1": 1, "sent-2": 1, "sent-4": 9})
    assert list(sending_findings(found, attempts, ["sent-4"])) == [
        "no pod has taken the event sent-4 within 60 s",
        "the event sent-1 was taken by a pod, and is lost",
        "the event sent-2 is 2 times on the bus, and was sent 1 times",
        "the event sent-3 is 1 times on the bus, and was sent 0 times",
    ]
