"""The verdict on a chaos run: a verdict that cannot fail proves nothing, so it is shown what it must find."""

from __future__ import annotations

from e2e.chaos.evidence import Call, Evidence, Mishap, fingerprint
from e2e.chaos.verdict import AFTER_CALL_MS, judge
from eventbus.formats import VERSION, ActionFact, Invocation, action_fact, encode_fact
from eventbus.names import Kind
from eventbus.ports import Record
from tests.core.builders import NAME, TOPOLOGY
from tests.core.test_checks import PLAN, Run

CALL_MS, PACE_MS = 5, 100


def make_evidence() -> Evidence:
    """Replica 0 has invoked all actions, one after the other: `both` at least once, `each` at most once."""
    run = Run()
    evidence = Evidence(
        plan=PLAN,
        topology=TOPOLOGY,
        at_least_once=frozenset(["both"]),
        events=run.events,
        triggers=run.triggers,
        actions=run.actions,
        invocations=[],
        dead_letters=[],
        concurrent=[fingerprint(record) for record in run.actions],
        calls=[],
        mishaps=[],
        commits={},
    )
    for number, record in enumerate(evidence.actions):
        fact, moment = action_fact(record), number * PACE_MS
        if fact.trigger == "each":
            note(evidence, fact, "taken", moment)
        evidence.calls.append(Call(fact.id, fact.trigger, "0", moment, moment + CALL_MS, 200))
        note(evidence, fact, "succeeded", moment)
    return evidence


def note(evidence: Evidence, fact: ActionFact, outcome: str, moment: int, replica: str = "0") -> None:
    invocation = Invocation(
        version=VERSION,
        action=fact.id,
        sensor="",
        trigger=fact.trigger,
        attempt=1,
        outcome=outcome,
        mode="",
        partition=0,
        offset=0,
        replica=replica,
        started=moment,
        ended=moment + CALL_MS,
    )
    topic, offset = NAME.topic(Kind.INVOCATION), len(evidence.invocations)
    evidence.invocations.append(Record(topic, 0, offset, moment, fact.id.encode(), encode_fact(invocation), ()))


def actions_of(evidence: Evidence, trigger: str) -> list[ActionFact]:
    return [fact for fact in map(action_fact, evidence.actions) if fact.trigger == trigger]


def forget(evidence: Evidence, action: str, *outcomes: str) -> None:
    evidence.invocations = [
        record
        for record in evidence.invocations
        if record.key != action.encode() or not any(outcome.encode() in (record.value or b"") for outcome in outcomes)
    ]


def uncall(evidence: Evidence, action: str) -> Call:
    [call] = [call for call in evidence.calls if call.action == action]
    evidence.calls.remove(call)
    return call


def test_a_run_without_fault_is_clean() -> None:
    findings = judge(make_evidence())
    assert findings.clean, findings
    assert not findings.given_up
    assert not findings.repeated


# --- the log and the concurrent reader -------------------------------------------------------------------------------


def test_a_lost_action_is_found() -> None:
    evidence = make_evidence()
    lost = action_fact(evidence.actions.pop()).id
    findings = judge(evidence)
    assert lost in findings.lost
    assert len(findings.unexplained) == 3  # the concurrent reader saw it, it was called, and that was recorded


def test_a_record_that_the_concurrent_reader_missed_is_found() -> None:
    evidence = make_evidence()
    partition, offset, _ = evidence.concurrent.pop(3)
    assert judge(evidence).unexplained == [f"action topic [{partition}]@{offset}: seen only in the dump"]


def test_a_record_that_the_concurrent_reader_saw_twice_is_found() -> None:
    evidence = make_evidence()
    evidence.concurrent.append(evidence.concurrent[-1])
    assert judge(evidence).unexplained == ["the concurrent reader saw 1 records twice"]


def test_a_record_with_other_bytes_is_found() -> None:
    evidence = make_evidence()
    partition, offset, checksum = evidence.concurrent[3]
    evidence.concurrent[3] = partition, offset, checksum + 1
    assert len(judge(evidence).unexplained) == 2


def test_records_that_the_concurrent_reader_saw_out_of_order_are_found() -> None:
    evidence = make_evidence()
    evidence.concurrent.reverse()
    assert judge(evidence).unexplained == ["the concurrent reader saw records out of order"]


# --- the ledger ------------------------------------------------------------------------------------------------------


def test_a_call_of_no_action_is_found() -> None:
    evidence = make_evidence()
    evidence.calls.append(Call("invented", "both", "0", 0, 5, 200))
    assert judge(evidence).unexplained == ["action invented: called by replica 0, and there is none"]


def test_a_success_without_a_call_is_found() -> None:
    evidence = make_evidence()
    uncall(evidence, actions_of(evidence, "both")[0].id)
    [found] = judge(evidence).unexplained
    assert "the sink saw no such call" in found


def test_a_success_whose_call_was_refused_is_found() -> None:
    evidence = make_evidence()
    call = uncall(evidence, actions_of(evidence, "both")[0].id)
    evidence.calls.append(Call(call.action, call.trigger, "0", call.began_ms, call.ended_ms, 500))
    assert any("the sink saw no such call" in found for found in judge(evidence).unexplained)


def test_a_repeated_call_needs_a_mishap_of_its_replica_at_that_time() -> None:
    evidence = make_evidence()
    action = actions_of(evidence, "both")[0]
    evidence.calls.append(Call(action.id, "both", "1", 50_000, 50_005, 200))
    evidence.mishaps = [
        Mishap("0", 50_002, 50_002, "of another replica"),
        Mishap("1", 49_000, 49_999, "too early"),
        Mishap("1", 50_006 + AFTER_CALL_MS, 70_000, "too late"),
    ]
    [found] = judge(evidence).unexplained
    assert "nothing had happened to the replica" in found
    evidence.mishaps.append(Mishap("1", 50_002, 50_002, "SIGKILL"))
    findings = judge(evidence)
    assert findings.clean
    assert [each.mishap for each in findings.repeated] == ["SIGKILL"]


# --- at least once, at most once -------------------------------------------------------------------------------------


def test_an_action_that_must_be_invoked_at_least_once_and_was_not_is_found() -> None:
    evidence = make_evidence()
    action = actions_of(evidence, "both")[0].id
    uncall(evidence, action)
    forget(evidence, action, "succeeded")
    evidence.mishaps = [Mishap("0", 0, 10_000, "SIGKILL")]
    assert judge(evidence).lost == [f"{action} (at least once, neither succeeded nor dead-lettered)"]


def test_a_dead_letter_is_as_good_as_a_success() -> None:
    evidence = make_evidence()
    for trigger in ("both", "each"):
        action = actions_of(evidence, trigger)[0]
        call = uncall(evidence, action.id)
        forget(evidence, action.id, "succeeded")
        note(evidence, action, "dead-lettered", call.began_ms)
    assert judge(evidence).clean


def test_an_action_that_was_invoked_twice_at_most_once_is_found_whatever_happened() -> None:
    evidence = make_evidence()
    action = actions_of(evidence, "each")[0].id
    evidence.calls.append(Call(action, "each", "1", 50_000, 50_005, 200))
    evidence.mishaps = [Mishap("1", 50_002, 50_002, "SIGKILL")]
    assert judge(evidence).duplicated == [f"{action} (at most once, called 2 times)"]


def test_an_action_that_was_taken_and_never_called_needs_a_mishap_of_who_took_it() -> None:
    evidence = make_evidence()
    last = actions_of(evidence, "each")[-1].id
    moment = uncall(evidence, last).began_ms
    forget(evidence, last, "succeeded")
    evidence.mishaps = [Mishap("1", moment, moment, "of another replica"), Mishap("0", 0, moment - 1, "too early")]
    assert judge(evidence).lost == [f"{last} (at most once, taken by replica 0, which never called it)"]
    evidence.mishaps.append(Mishap("0", moment + 3, moment + 3, "SIGKILL at invoke after-commit"))
    findings = judge(evidence)
    assert findings.clean, findings
    assert [(each.action, each.mishap) for each in findings.given_up] == [(last, "SIGKILL at invoke after-commit")]


def test_whoever_went_on_with_the_lane_has_not_died_of_the_mishap() -> None:
    evidence = make_evidence()
    first = actions_of(evidence, "each")[0].id
    uncall(evidence, first)
    forget(evidence, first, "succeeded")
    evidence.mishaps = [Mishap("0", 5_000, 5_000, "SIGKILL")]
    assert judge(evidence).lost == [f"{first} (at most once, taken by replica 0, which never called it)"]


def test_an_action_that_nobody_ever_took_is_found() -> None:
    evidence = make_evidence()
    action = actions_of(evidence, "each")[0].id
    uncall(evidence, action)
    forget(evidence, action, "taken", "succeeded")
    evidence.mishaps = [Mishap("0", 0, 10_000, "SIGKILL")]
    assert judge(evidence).lost == [f"{action} (at most once, taken 0 times, never called)"]


def test_an_action_that_was_released_must_be_taken_again() -> None:
    evidence = make_evidence()
    action = actions_of(evidence, "each")[0]
    moment = uncall(evidence, action.id).began_ms
    forget(evidence, action.id, "succeeded")
    note(evidence, action, "released", moment)
    assert not judge(evidence).clean
    note(evidence, action, "taken", 2_000, replica="1")
    evidence.calls.append(Call(action.id, "each", "1", 2_010, 2_015, 200))
    note(evidence, action, "succeeded", 2_010, replica="1")
    assert judge(evidence).clean
