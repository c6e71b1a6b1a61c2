"""The checks behind every verdict: a check that cannot fail proves nothing, so each is shown what it must find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pytest

from eventbus.events import Event
from eventbus.formats import ACTION_HEADER, VERSION, Failure, Invocation, Source, action_fact, encode_fact, trigger_fact
from eventbus.metadata import InvokeCommit, JoinCommit, Mark, Owner, encode_invoke, encode_join, encode_match
from eventbus.names import Kind, Stage
from eventbus.ports import Output, Record
from sensors.audit.commits import SeenCommit
from sensors.audit.invocations import Call, Mishap
from sensors.audit.verdict import Evidence, Verdict, judge
from sensors.audit.violations import Breach, Violation
from sensors.deadletters import ACTION_FAILED, INVALID_EVENT, SPEC_CHANGED, DeadLetters
from sensors.dlqactions import dlq_action
from sensors.join import JoinPartition
from sensors.match import Matcher
from sensors.plan import SensorPlan
from tests.core.builders import NAME, OWNER, TOPOLOGY, as_read, event_record, make_plan

CONDITIONS = {"both": "a && b", "each": "a || b"}
PLAN = make_plan(CONDITIONS)
NEWER = Owner(2, "BBBBBBBB")
REPLICA = "0"
AT_MOST_ONCE, AT_LEAST_ONCE = "each", "both"
"""How the triggers are delivered here."""
LETTERS = DeadLetters.of_stage(NAME, Stage.INVOKE, TOPOLOGY, REPLICA)


class Run:
    """What a sensor that works has left behind after eleven events; the last `a` is held."""

    def __init__(self) -> None:
        self.plans: dict[int, SensorPlan] = {OWNER.generation: PLAN}
        self.events = [
            event_record(Event.new("shop", "ab"[number % 2], id=f"e{number}", partitionkey="k"), offset=number)
            for number in range(11)
        ]
        matched = [output for event in self.events for output in Matcher(PLAN, TOPOLOGY, REPLICA).outputs(event)]
        self.triggers = _read(output for output in matched if output.topic == NAME.topic(Kind.TRIGGER))
        step = JoinPartition(PLAN, TOPOLOGY, 0, JoinCommit(OWNER, 0, 0, {}), REPLICA).step(self.triggers)
        assert step is not None
        direct = [output for output in matched if output.topic == NAME.topic(Kind.ACTION)]
        self.actions = _read([*direct, *step.outputs])
        self.held = {("both", "", "a", trigger_fact(self.triggers[-1]).source)}
        self.commits = [
            SeenCommit(Stage.MATCH, 0, len(self.events), encode_match(OWNER), REPLICA),
            SeenCommit(Stage.JOIN, 0, step.commit.offset, encode_join(step.commit), REPLICA),
            *(_invoke_commit(partition, len(self.actions)) for partition in range(TOPOLOGY.action_partitions)),
        ]
        self.invocations: list[Invocation] = []
        self.calls: list[Call] = []
        for record in self.actions:
            if action_fact(record).trigger == AT_MOST_ONCE:
                self.invocations.append(note(record, "taken"))
            self.invocations.append(note(record, "succeeded"))
            self.calls.append(call(record))
        self.letters: list[Record] = []
        self.mishaps: list[Mishap] = []
        self.horizon = 100

    def verdict(self) -> Verdict:
        return judge(
            Evidence(
                plans=self.plans,
                events=self.events,
                triggers=self.triggers,
                actions=self.actions,
                invocations=_read(Output("i", 0, each.action.encode(), encode_fact(each)) for each in self.invocations),
                letters=self.letters,
                commits=self.commits,
                held=self.held,
                calls=self.calls,
                mishaps=self.mishaps,
                horizon=self.horizon,
            )
        )

    def violations(self) -> list[Violation]:
        return self.verdict().violations

    def action(self, trigger: str, which: int = 0) -> Record:
        return [record for record in self.actions if action_fact(record).trigger == trigger][which]

    def forget(self, action: Record, *, outcomes: Sequence[str] = (), calls: bool = False) -> None:
        """Remove from the two accounts of an action."""
        id_ = action_fact(action).id
        self.invocations = [each for each in self.invocations if each.action != id_ or each.outcome not in outcomes]
        if calls:
            self.calls = [each for each in self.calls if each.action != id_]


def _read(outputs: Iterable[Output]) -> list[Record]:
    return [as_read(output, number) for number, output in enumerate(outputs)]


def as_written(record: Record) -> Output:
    return Output(record.topic, record.partition, record.key, record.value, record.headers)


def _invoke_commit(partition: int, offset: int, *finished: tuple[int, int]) -> SeenCommit:
    return SeenCommit(Stage.INVOKE, partition, offset, encode_invoke(InvokeCommit(OWNER, offset, finished)), REPLICA)


def note(record: Record, outcome: str, at: int = 1000, replica: str = REPLICA) -> Invocation:
    fact = action_fact(record)
    return Invocation(
        version=VERSION,
        action=fact.id,
        sensor=str(NAME),
        trigger=fact.trigger,
        attempt=1,
        outcome=outcome,
        mode="atMostOnce" if fact.trigger == AT_MOST_ONCE else "atLeastOnce",
        partition=record.partition,
        offset=record.offset,
        replica=replica,
        started=at,
        ended=at,
    )


def call(record: Record, at: int = 1000, replica: str = REPLICA, *, succeeded: bool = True) -> Call:
    return Call(action_fact(record).id, replica, at, at, succeeded)


def test_a_run_without_fault_is_clean() -> None:
    verdict = Run().verdict()
    assert verdict.violations == []
    assert (verdict.events, verdict.expected, verdict.actions, verdict.invoked) == (11, 16, 16, 16)


# --- actions (I1 to I4) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", ["both", "each"])
def test_a_lost_action_is_found_with_all_that_is_known_of_it(trigger: str) -> None:
    run = Run()
    lost = run.action(trigger)
    run.actions.remove(lost)
    run.forget(lost, outcomes=["taken", "succeeded"], calls=True)
    found = run.violations()
    assert [each.breach for each in found if each.invariant == "I1"] == [Breach.LOST]
    [violation] = [each for each in found if each.invariant == "I1"]
    assert action_fact(lost).id in violation.what
    assert (violation.trigger, violation.replica) == (trigger, REPLICA)
    assert violation.events == tuple(f"ns-bus[0]@{event.source.offset}" for event in action_fact(lost).events)
    assert violation.place.startswith(NAME.event_topic)
    assert str(violation).startswith(f"I1 lost: the action {action_fact(lost).id}")
    assert {each.invariant for each in found} == {"I1", "I3"}, "and its events are used nowhere"


@pytest.mark.parametrize("trigger", ["both", "each"])
def test_a_repeated_action_is_found(trigger: str) -> None:
    run = Run()
    again = msgspec.structs.replace(run.action(trigger), offset=99)
    run.actions.append(again)
    run.commits = [msgspec.structs.replace(each, offset=100) if each.stage is Stage.INVOKE else each
                   for each in run.commits]  # fmt: skip
    [violation] = [each for each in run.violations() if each.invariant == "I2"]
    assert (violation.breach, violation.trigger, violation.replica) == (Breach.DUPLICATED, trigger, REPLICA)
    assert violation.place == f"{again.topic}[{again.partition}]@99"


def test_actions_in_the_wrong_order_are_found() -> None:
    run = Run()
    run.actions[0], run.actions[1] = run.actions[1], run.actions[0]
    [violation] = run.violations()
    assert (violation.invariant, violation.breach) == ("I1", Breach.OUT_OF_ORDER)
    assert action_fact(run.actions[1]).id in violation.what


def test_an_action_that_nothing_has_caused_is_found() -> None:
    run = Run()
    other = event_record(Event.new("shop", "a", id="forged"), offset=99)
    forged = [each for each in Matcher(PLAN, TOPOLOGY, "7").outputs(other) if each.topic == NAME.topic(Kind.ACTION)]
    run.actions.append(as_read(forged[0], 15))
    [violation] = [each for each in run.violations() if each.invariant == "I1"]
    assert (violation.breach, violation.replica) == (Breach.UNEXPLAINED, "7")


def test_lost_repeated_and_forged_trigger_records_are_found() -> None:
    run = Run()
    removed = run.triggers.pop(0)
    assert "is not in the trigger topic" in str(run.violations())
    run.triggers[:0] = [removed, removed]
    assert ("I2", Breach.DUPLICATED) in [(each.invariant, each.breach) for each in run.violations()]
    run = Run()
    other = event_record(Event.new("shop", "b", id="forged"), offset=99)
    [forged] = [each for each in Matcher(PLAN, TOPOLOGY, "7").outputs(other) if each.topic == NAME.topic(Kind.TRIGGER)]
    run.triggers.append(as_read(forged, len(run.triggers)))
    assert "a trigger record that nothing has caused" in str(run.violations())


def test_a_held_event_that_is_gone_or_too_much_is_found() -> None:
    run = Run()
    run.held = set()
    assert {each.invariant for each in run.violations()} == {"I3", "I4"}
    run = Run()
    run.held.add(("both", "", "b", Source(0, 1, 0)))
    [violation] = run.violations()
    assert (violation.invariant, violation.breach, violation.events) == ("I4", Breach.UNEXPLAINED, ("ns-bus[0]@1",))


def test_an_event_that_cannot_be_read_must_be_in_the_dead_letters_once() -> None:
    run = Run()
    broken = msgspec.structs.replace(run.events[0], offset=11, headers=[])
    run.events.append(broken)
    run.commits[0] = msgspec.structs.replace(run.commits[0], offset=12)
    [violation] = run.violations()
    assert (violation.invariant, violation.breach, violation.events) == ("I3", Breach.LOST, ("ns-bus[0]@11",))
    letter = as_read(LETTERS.of(broken, INVALID_EVENT, "no id"), 0)
    run.letters = [letter]
    assert run.violations() == []
    run.letters = [letter, letter]
    assert [each.breach for each in run.violations()] == [Breach.DUPLICATED]


def test_what_the_log_would_not_take_is_in_the_dead_letters() -> None:
    run = Run()
    refused = run.action("both")
    run.actions.remove(refused)
    run.forget(refused, outcomes=["succeeded"], calls=True)
    run.letters = [as_read(LETTERS.of_refused(as_written(refused), "too large"), 0)]
    assert run.violations() == []


class FailedRun(Run):
    """One action was given up, and its trigger has a dlqTrigger."""

    def __init__(self) -> None:
        super().__init__()
        self.plans = {OWNER.generation: make_plan(CONDITIONS, with_dlq_trigger=["both"])}
        given_up = self.action("both")
        fact = action_fact(given_up)
        self.forget(given_up, outcomes=["succeeded"], calls=True)
        self.invocations.append(note(given_up, "dead-lettered"))
        self.letters = [as_read(LETTERS.of(given_up, ACTION_FAILED, "503", trigger="both", action=fact.id), 0)]
        failure = Failure(fact.id, "503", 3, "503")
        self.due = as_read(dlq_action(given_up, fact, failure, REPLICA), len(self.actions))
        self.actions.append(self.due)
        self.invocations.append(note(self.due, "succeeded"))
        self.calls.append(call(self.due))
        self.commits[-TOPOLOGY.action_partitions :] = [
            _invoke_commit(partition, len(self.actions)) for partition in range(TOPOLOGY.action_partitions)
        ]


def test_the_action_of_a_dlq_trigger_is_explained_by_what_was_given_up() -> None:
    assert FailedRun().violations() == []


def test_the_action_of_a_dlq_trigger_must_not_be_missing() -> None:
    run = FailedRun()
    run.actions.remove(run.due)
    run.forget(run.due, outcomes=["succeeded"], calls=True)
    [violation] = run.violations()
    assert (violation.invariant, violation.breach, violation.trigger) == ("I3", Breach.LOST, "both")
    run.letters.append(as_read(LETTERS.of_refused(as_written(run.due), "too large"), 1))
    assert run.violations() == [], "the log would not take it, which is known"


def test_the_action_of_a_dlq_trigger_must_not_be_there_twice() -> None:
    run = FailedRun()
    run.actions.append(msgspec.structs.replace(run.due, offset=99))
    run.commits[-TOPOLOGY.action_partitions :] = [_invoke_commit(p, 100) for p in range(TOPOLOGY.action_partitions)]
    [violation] = run.violations()
    assert (violation.invariant, violation.breach, violation.trigger) == ("I2", Breach.DUPLICATED, "both/dlq")


@pytest.mark.parametrize("forged", [Failure("another", "503", 3), None])
def test_the_action_of_a_dlq_trigger_must_have_a_cause(forged: Failure | None) -> None:
    run = FailedRun()
    if forged is None:
        run.letters = []
    else:
        fact = msgspec.structs.replace(action_fact(run.due), failure=forged)
        run.actions[-1] = msgspec.structs.replace(run.due, headers=[(ACTION_HEADER, encode_fact(fact))])
    assert ("I1", Breach.UNEXPLAINED) in [(each.invariant, each.breach) for each in run.violations()]


def test_the_action_of_a_dlq_trigger_is_invoked_as_any_other() -> None:
    run = FailedRun()
    run.forget(run.due, outcomes=["succeeded"], calls=True)
    [violation] = run.violations()
    assert (violation.invariant, violation.breach, violation.trigger) == ("I7", Breach.LOST, "both/dlq")


def test_what_does_not_fit_a_new_spec_must_be_parked_once() -> None:
    run = Run()
    newer = make_plan({"both": "c && d", "each": "a || b"}, owner=NEWER)
    run.plans[2] = newer
    run.held = set()
    parked = as_read(LETTERS.of(run.triggers[-1], SPEC_CHANGED, "gone", trigger="both"), 0)
    position = len(run.triggers)
    run.commits.append(SeenCommit(Stage.JOIN, 0, position, encode_join(JoinCommit(newer.owner, position, 0, {}))))
    assert [each.breach for each in run.violations()] == [Breach.LOST, Breach.LOST]
    run.letters = [parked]
    assert run.violations() == []
    run.letters = [parked, parked]
    assert [each.breach for each in run.violations()] == [Breach.DUPLICATED]


# --- commits (I5, I6, I9, I10) ----------------------------------------------------------------------------------------


def test_metadata_that_is_too_long_or_not_canonical_is_found() -> None:
    run = Run()
    many = {f"{number:06}": Mark("abcd", 10) for number in range(400)}
    long = ";".join(["j1", "1", OWNER.digest, "11", "0", ",".join(f"{name}abcd0" for name in many)])
    run.commits[1] = SeenCommit(Stage.JOIN, 0, 10, long)
    assert [each.invariant for each in run.violations()] == ["I5"]
    run = Run()
    run.commits[0] = SeenCommit(Stage.MATCH, 0, 11, "m1;01;" + OWNER.digest)
    assert [each.invariant for each in run.violations()] == ["I5"]


@pytest.mark.parametrize("stage", [Stage.MATCH, Stage.JOIN])
def test_a_commit_that_undoes_another_is_found(stage: Stage) -> None:
    run = Run()
    metadata = encode_match(OWNER) if stage is Stage.MATCH else encode_join(JoinCommit(OWNER, 99, 0, {}))
    run.commits.insert(0, SeenCommit(stage, 0, 99, metadata, "1"))
    [violation] = run.violations()
    assert (violation.invariant, violation.replica) == ("I6", REPLICA)


def test_an_older_generation_after_a_newer_one_is_found() -> None:
    run = Run()
    newer = make_plan({"both": "a && b", "each": "a || b"}, owner=NEWER)
    run.plans[2] = newer
    run.commits.insert(0, SeenCommit(Stage.MATCH, 0, 5, encode_match(newer.owner)))
    assert [each.invariant for each in run.violations()] == ["I6"]


def test_an_action_that_is_not_finished_any_more_must_have_been_given_back() -> None:
    run = Run()
    action = run.action(AT_MOST_ONCE)
    earlier = _invoke_commit(action.partition, 0, (action.offset, action.offset + 1))
    later = _invoke_commit(action.partition, 0)
    run.commits = [earlier, later, *run.commits]
    assert "I6" in {each.invariant for each in run.violations()}
    run.invocations.insert(0, note(action, "released"))
    assert run.violations() == []


def test_work_that_is_left_is_found() -> None:
    for index in range(3):
        run = Run()
        run.commits[index] = msgspec.structs.replace(run.commits[index], offset=0)
        if index == 1:
            run.commits[1] = SeenCommit(Stage.JOIN, 0, 1, encode_join(JoinCommit(OWNER, 1, 0, {})))
        assert "I9" in {each.invariant for each in run.violations()}


def test_a_replay_beyond_the_horizon_is_found() -> None:
    run = Run()
    run.horizon = 0
    assert [each.invariant for each in run.violations()] == ["I10"]


# --- invocations (I7) -------------------------------------------------------------------------------------------------


def test_an_action_that_was_never_dealt_with_is_found() -> None:
    run = Run()
    action = run.action(AT_LEAST_ONCE)
    run.forget(action, outcomes=["succeeded"], calls=True)
    [violation] = run.violations()
    assert (violation.invariant, violation.breach) == ("I7", Breach.LOST)
    run.letters = [as_read(LETTERS.of(action, ACTION_FAILED, "no", action=action_fact(action).id), 0)]
    assert run.violations() == []


def test_a_success_that_the_target_knows_nothing_of_is_found() -> None:
    run = Run()
    run.forget(run.action(AT_LEAST_ONCE), calls=True)
    assert {(each.invariant, each.breach) for each in run.violations()} == {
        ("I7", Breach.LOST),
        ("I7", Breach.UNEXPLAINED),
    }


def test_at_most_once_may_not_be_called_twice_whatever_happened() -> None:
    run = Run()
    action = run.action(AT_MOST_ONCE)
    run.calls.append(call(action, replica="1"))
    run.mishaps = [Mishap("1", 0, 10**6, "SIGKILL")]
    [violation] = run.violations()
    assert (violation.invariant, violation.breach) == ("I7", Breach.DUPLICATED)


def test_a_call_without_a_record_must_be_explained_by_a_mishap_of_that_replica() -> None:
    run = Run()
    run.calls.append(call(run.action(AT_LEAST_ONCE), at=50_000, replica="1"))
    assert [each.breach for each in run.violations()] == [Breach.UNEXPLAINED]
    run.mishaps = [Mishap("2", 50_001, 50_001, "SIGKILL"), Mishap("1", 90_000, 90_000, "SIGKILL")]
    assert [each.breach for each in run.violations()] == [Breach.UNEXPLAINED], "another replica, and too late"
    run.mishaps.append(Mishap("1", 51_000, 51_000, "SIGKILL after commit"))
    verdict = run.verdict()
    assert verdict.clean
    assert [each.mishap for each in verdict.unrecorded] == ["SIGKILL after commit"]


def test_a_record_tells_of_the_call_at_its_time() -> None:
    run = Run()
    action = run.action(AT_LEAST_ONCE)
    run.calls.insert(0, call(action, at=-50_000, succeeded=False))
    run.mishaps = [Mishap(REPLICA, -49_000, -49_000, "SIGKILL")]
    assert run.violations() == []


def test_a_record_of_what_was_never_sent_tells_of_no_call() -> None:
    run = Run()
    action = run.action(AT_LEAST_ONCE)
    run.invocations.append(note(action, "failed", at=20_000))
    run.calls.append(call(action, at=50_000, succeeded=False))
    assert [each.breach for each in run.violations()] == [Breach.UNEXPLAINED]
    run.calls[-1] = call(action, at=20_050, succeeded=False)
    assert run.violations() == []


def test_a_call_by_nobody_knows_whom_may_be_anybodys() -> None:
    run = Run()
    action = run.action(AT_LEAST_ONCE)
    run.forget(action, calls=True)
    run.calls.append(call(action, replica=""))
    assert run.violations() == []
    run.calls.append(call(action, replica=""))
    assert [each.breach for each in run.violations()] == [Breach.UNEXPLAINED]
    run.mishaps = [Mishap("5", 1000, 1000, "SIGKILL")]
    assert run.violations() == []


def test_an_action_that_was_taken_and_never_called_must_be_explained() -> None:
    run = Run()
    action = run.action(AT_MOST_ONCE)
    run.forget(action, outcomes=["succeeded"], calls=True)
    assert [each.breach for each in run.violations()] == [Breach.LOST]
    run.mishaps = [Mishap(REPLICA, 500, 500, "before"), Mishap("1", 2000, 2000, "somebody else")]
    assert [each.breach for each in run.violations()] == [Breach.LOST]
    run.mishaps.append(Mishap(REPLICA, 99_000, 99_000, "much later"))
    assert [each.breach for each in run.violations()] == [Breach.LOST]
    run.mishaps.append(Mishap(REPLICA, 2000, 2000, "SIGKILL after commit"))
    verdict = run.verdict()
    assert [each.mishap for each in verdict.given_up] == [""], "it went on to the next of the lane before that"
    later = [action_fact(record).id for record in run.actions if action_fact(record).trigger == AT_MOST_ONCE][1:]
    run.calls = [msgspec.structs.replace(each, began=3000, ended=3000) if each.action in later else each
                 for each in run.calls]  # fmt: skip
    verdict = run.verdict()
    assert verdict.clean
    assert [each.mishap for each in verdict.given_up] == ["SIGKILL after commit"]


def test_an_action_that_was_given_back_must_be_taken_again() -> None:
    run = Run()
    action = run.action(AT_MOST_ONCE)
    run.forget(action, outcomes=["succeeded"], calls=True)
    run.invocations.append(note(action, "released"))
    run.mishaps = [Mishap(REPLICA, 0, 10**6, "SIGKILL")]
    assert [each.breach for each in run.violations()] == [Breach.LOST]


def test_a_call_for_no_action_is_found() -> None:
    run = Run()
    run.calls.append(Call("unheard-of", REPLICA, 0, 0, succeeded=True))
    assert [each.breach for each in run.violations()] == [Breach.UNEXPLAINED]


@pytest.mark.parametrize(("written", "clean"), [(1, True), (0, False), (2, False)])
def test_exactly_once_is_written_exactly_once(written: int, clean: bool) -> None:
    run = Run()
    action = run.action(AT_LEAST_ONCE)
    run.forget(action, calls=True)
    run.invocations = [
        msgspec.structs.replace(each, mode="exactlyOnce") if each.action == action_fact(action).id else each
        for each in run.invocations
    ]
    run.calls += [call(action)] * written
    assert run.verdict().clean is clean


@pytest.mark.parametrize("meant_for", ["ns/bus/other", str(NAME)])
def test_the_reference_knows_for_whom_a_copy_was_replayed(meant_for: str) -> None:
    run = Run()
    copy = Event.new("shop", "b", id="e1", partitionkey="k", replayfor=meant_for, replayof="0:1")
    run.events.append(event_record(copy, offset=len(run.events)))
    run.commits.append(SeenCommit(Stage.MATCH, 0, len(run.events), encode_match(OWNER), REPLICA))
    lost = {violation.breach for violation in run.verdict().violations}
    assert bool(lost) is (meant_for == str(NAME))
