"""The checks behind every verdict: a check that cannot fail proves nothing, so each is shown what it must find."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from eventbus.events import Event
from eventbus.formats import VERSION, Invocation, action_fact
from eventbus.metadata import JoinCommit
from eventbus.names import Kind
from eventbus.ports import Output, Record
from sensors.checks import Verdict, check_actions, check_invocations
from sensors.join import JoinPartition
from sensors.match import Matcher
from tests.core.builders import NAME, OWNER, TOPOLOGY, as_read, event_record, make_plan

PLAN = make_plan({"both": "a && b", "each": "a || b"})


class Run:
    """What a sensor that works has written for ten events."""

    def __init__(self) -> None:
        self.events = [
            event_record(Event.new("shop", "ab"[number % 2], id=f"e{number}", partitionkey="k"), offset=number)
            for number in range(10)
        ]
        matched = [o for event in self.events for o in Matcher(PLAN, TOPOLOGY, "0").outputs(event)]
        triggers = [output for output in matched if output.topic == NAME.topic(Kind.TRIGGER)]
        self.triggers = [as_read(output, number) for number, output in enumerate(triggers)]
        step = JoinPartition(PLAN, TOPOLOGY, 0, JoinCommit(OWNER, 0, 0, {}), "0").step(self.triggers)
        assert step is not None
        actions: list[Output] = [output for output in matched if output.topic == NAME.topic(Kind.ACTION)]
        self.actions = [as_read(output, number) for number, output in enumerate(actions + step.outputs)]

    def verdict(self) -> Verdict:
        return check_actions(PLAN, TOPOLOGY, events=self.events, triggers=self.triggers, actions=self.actions)


def test_a_run_without_fault_is_clean() -> None:
    verdict = Run().verdict()
    assert verdict.clean
    assert (verdict.events, verdict.expected, verdict.actions) == (10, 15, 15)


@pytest.mark.parametrize("which", [0, -1])
def test_a_lost_action_is_found(which: int) -> None:
    run = Run()
    lost = action_fact(run.actions.pop(which)).id
    assert run.verdict().lost == [lost]


@pytest.mark.parametrize("which", [0, -1])
def test_a_repeated_action_is_found(which: int) -> None:
    run = Run()
    run.actions.append(run.actions[which])
    assert run.verdict().repeated == [action_fact(run.actions[which]).id]


def test_actions_in_the_wrong_order_are_found() -> None:
    run = Run()
    run.actions[0], run.actions[1] = run.actions[1], run.actions[0]
    assert run.verdict().out_of_order == [action_fact(run.actions[1]).id]


def test_an_action_that_nothing_has_caused_is_found() -> None:
    run = Run()
    other = event_record(Event.new("shop", "a", id="forged"), offset=99)
    forged = [o for o in Matcher(PLAN, TOPOLOGY, "0").outputs(other) if o.topic == NAME.topic(Kind.ACTION)]
    run.actions.append(as_read(forged[0], 99))
    assert run.verdict().unexpected == [action_fact(run.actions[-1]).id]


def test_a_lost_and_a_repeated_trigger_record_are_found() -> None:
    run = Run()
    removed = run.triggers.pop()
    assert run.verdict().lost
    run.triggers += [removed, removed]
    assert run.verdict().repeated


def note(record: Record, outcome: str) -> Invocation:
    return Invocation(
        version=VERSION,
        action=action_fact(record).id,
        sensor=str(NAME),
        trigger=action_fact(record).trigger,
        attempt=1,
        outcome=outcome,
        mode="",
        partition=0,
        offset=record.offset,
        replica="0",
        started=0,
        ended=0,
    )


def test_invocations_are_judged_by_their_mode() -> None:
    run = Run()
    ids = {record.offset: action_fact(record).id for record in run.actions}
    once, least = run.actions[0], run.actions[-1]
    calls = Counter(ids.values())
    assert check_invocations(run.actions, [], calls, {"both"}).clean
    calls[ids[once.offset]] = calls[ids[least.offset]] = 2
    verdict = check_invocations(run.actions, [], calls, {"both"})
    assert (verdict.too_often, verdict.not_at_all) == ([ids[once.offset]], [])
    calls[ids[once.offset]] = calls[ids[least.offset]] = 0
    verdict = check_invocations(run.actions, [], calls, {"both"})
    assert (verdict.at_risk, verdict.not_at_all) == ([ids[once.offset]], [ids[least.offset]])
    letters = [note(least, "dead-lettered"), note(once, "dead-lettered")]
    verdict = check_invocations(run.actions, letters, calls, {"both"})
    assert (verdict.at_risk, verdict.not_at_all, verdict.dead_lettered) == ([], [], 2)
    assert msgspec.json.encode(verdict)
