"""The invoke core: delivery modes, order within a lane, retries, dead letters, crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventbus.events import Event
from eventbus.formats import REDRIVEN_HEADER, Invocation, action_fact, dead_letter
from eventbus.hashing import dlq_action_id
from eventbus.metadata import InvokeCommit, decode_invoke, encode_invoke
from eventbus.names import Kind
from eventbus.ports import Output, Record
from sensors.actions.base import ActionError
from sensors.invoke import Invoker, InvokeStep
from sensors.ledger import Ledger
from sensors.match import Matcher
from sensors.pauses import ALL
from sensors.retry import RetryPolicy
from sensors.tasks import Delivery, Task
from tests.core.builders import EXAMPLES, NAME, OWNER, TOPOLOGY, as_read, event_record, make_plan

PLAN = make_plan({"once": "a", "least": "b"})
ONCE, LEAST = Delivery(at_least_once=False), Delivery(at_least_once=True)
RETRY = RetryPolicy(steps=3, duration=1.0, factor=2.0, jitter=0.0)


def action(trigger: str, offset: int, key: str = "") -> Record:
    event = Event.new(
        "shop", "a" if trigger == "once" else "b", id=f"{offset}", **({"partitionkey": key} if key else {})
    )
    [output] = Matcher(PLAN, TOPOLOGY, "0").outputs(event_record(event, offset=offset))
    return msgspec.structs.replace(as_read(output, offset), partition=0)


def invoker(once: Delivery = ONCE, least: Delivery = LEAST, *, concurrency: int = 4) -> Invoker:
    made = Invoker(PLAN, {"once": once, "least": least}, TOPOLOGY, "0", concurrency=concurrency)
    made.open(0, InvokeCommit(OWNER, 0, ()))
    return made


def started(core: Invoker, now: float = 0.0) -> list[Task]:
    return list(core.startable(now, int(now * 1000)))


def outcomes(step: InvokeStep | None) -> list[tuple[int, str]]:
    assert step is not None
    notes = [msgspec.json.decode(o.value or b"", type=Invocation) for o in invocations(step.outputs)]
    return [(note.offset, note.outcome) for note in notes]


def invocations(outputs: Sequence[Output]) -> list[Output]:
    return [output for output in outputs if output.topic == NAME.topic(Kind.INVOCATION)]


def failure(*, retriable: bool = True, sent: bool = True, retry_after: float | None = None) -> ActionError:
    return ActionError("no", retriable=retriable, sent=sent, status="503", retry_after=retry_after)


def test_at_most_once_is_marked_and_committed_before_it_is_invoked() -> None:
    core = invoker()
    core.receive([action("once", 0)])
    assert started(core) == []
    step = core.transaction(5)
    assert outcomes(step) == [(0, "taken")]
    assert step is not None
    assert step.commits[0].offset == 1
    assert started(core) == [], "the mark is not durable yet"
    core.committed()
    assert len(started(core)) == 1


def test_at_least_once_is_marked_after_it_has_succeeded() -> None:
    core = invoker()
    core.receive([action("least", 0)])
    [task] = started(core)
    step = core.transaction(5)
    assert step is not None
    assert (step.outputs, step.commits[0].offset) == ([], 0)
    core.succeeded(task, "200", 9)
    step = core.transaction(9)
    assert outcomes(step) == [(0, "succeeded")]
    assert step is not None
    assert step.commits[0].offset == 1


def test_exactly_once_is_marked_with_what_it_writes_whatever_the_trigger_asks_for() -> None:
    core = invoker(once=Delivery(at_least_once=False, exactly_once=True))
    core.receive([action("once", 0)])
    [task] = started(core)
    written = Output("elsewhere", 0, None, b"x")
    core.succeeded(task, "written", 9, [written])
    step = core.transaction(9)
    assert step is not None
    assert written in step.outputs
    assert outcomes(step) == [(0, "succeeded")]
    assert step.commits[0].offset == 1


def test_one_key_is_in_order_and_another_overtakes_it() -> None:
    core = invoker()
    core.receive([action("least", 0, "x"), action("least", 1, "x"), action("least", 2, "y")])
    first = started(core)
    assert [task.record.offset for task in first] == [0, 2]
    core.succeeded(first[1], "ok", 1)
    assert started(core) == []
    step = core.transaction(1)
    assert step is not None
    assert step.commits[0] == InvokeCommit(OWNER, 0, [(2, 3)])
    core.succeeded(first[0], "ok", 2)
    assert [task.record.offset for task in started(core)] == [1]


def test_no_more_run_at_a_time_than_the_concurrency_allows() -> None:
    core = invoker(concurrency=2)
    core.receive([action("least", offset, f"k{offset}") for offset in range(5)])
    running = started(core)
    assert len(running) == 2
    core.succeeded(running[0], "ok", 1)
    assert len(started(core)) == 1


def test_a_lane_takes_ahead_but_never_in_the_place_of_another_lanes_head() -> None:
    core = invoker(concurrency=2)
    core.receive([action("once", offset, "slow") for offset in range(10)] + [action("once", 10, "other")])
    taken = [offset for offset, _ in outcomes(core.transaction(0))]
    assert taken == [0, 10, 1, 2]


def test_a_failed_attempt_is_retried_with_growing_delays_and_then_dead_lettered() -> None:
    core = invoker(least=Delivery(at_least_once=True, retry=RETRY))
    core.receive([action("least", 0)])
    [task] = started(core, 0.0)
    core.failed(task, failure(), 0.5, 500)
    assert core.next_wakeup() == 1.5
    assert started(core, 1.4) == []
    [task] = started(core, 1.5)
    core.failed(task, failure(), 2.0, 2000)
    assert core.next_wakeup() == 4.0
    [task] = started(core, 4.0)
    core.failed(task, failure(), 4.0, 4000)
    step = core.transaction(4000)
    assert outcomes(step) == [(0, "failed"), (0, "failed"), (0, "dead-lettered")]
    assert step is not None
    assert step.commits[0].offset == 1
    [letter] = [output for output in step.outputs if output.topic == NAME.topic(Kind.DLQ)]
    fact = dead_letter(as_read(letter, 0))
    assert (fact.reason, fact.detail, fact.attempts, fact.trigger) == ("action-failed", "no", 3, "least")


@pytest.mark.parametrize(("trigger", "sent"), [("least", True), ("once", True)])
def test_what_is_given_up_is_an_action_of_the_dlq_trigger_in_the_same_transaction(trigger: str, sent: bool) -> None:
    core = Invoker(PLAN, {"once": ONCE, "least": LEAST, "once/dlq": LEAST, "least/dlq": ONCE}, TOPOLOGY, "0")
    core.open(0, InvokeCommit(OWNER, 0, ()))
    failed = action(trigger, 0, "k")
    core.receive([failed])
    core.transaction(0)
    core.committed()
    [task] = started(core)
    core.failed(task, failure(sent=sent), 0.0, 9)
    step = core.transaction(9)
    assert step is not None
    assert outcomes(step) == [(0, "dead-lettered")]
    [due] = [output for output in step.outputs if output.topic == NAME.topic(Kind.ACTION)]
    assert due.partition == failed.partition
    record = as_read(due, 1)
    fact = action_fact(record)
    assert (fact.trigger, fact.id) == (f"{trigger}/dlq", dlq_action_id(action_fact(failed).id))
    core.committed()
    core.receive([record])
    core.transaction(10)
    core.committed()
    [task] = started(core)
    call = task.call("sensor")
    assert call.trigger == f"{trigger}/dlq"
    own = "a" if trigger == "once" else "b"
    assert call.events.keys() == {own, "$failure"}
    assert call.events["$failure"].json() == {
        "action": action_fact(failed).id,
        "trigger": trigger,
        "error": "no",
        "status": "503",
        "attempts": 1,
        "events": {own: {"source": "shop", "id": "0"}},
    }
    core.failed(task, failure(), 1.0, 11)
    step = core.transaction(11)
    assert step is not None
    assert not [output for output in step.outputs if output.topic == NAME.topic(Kind.ACTION)], "and no further"
    [letter] = [output for output in step.outputs if output.topic == NAME.topic(Kind.DLQ)]
    assert dead_letter(as_read(letter, 0)).trigger == f"{trigger}/dlq"


def test_what_succeeds_or_is_tried_again_is_no_business_of_the_dlq_trigger() -> None:
    retried = Delivery(at_least_once=True, retry=RETRY)
    core = Invoker(PLAN, {"least": retried, "least/dlq": LEAST}, TOPOLOGY, "0")
    core.open(0, InvokeCommit(OWNER, 0, ()))
    core.receive([action("least", 0)])
    [task] = started(core)
    core.failed(task, failure(), 0.0, 0)
    [task] = started(core, 1.0)
    core.succeeded(task, "ok", 1)
    step = core.transaction(1)
    assert step is not None
    assert {output.topic for output in step.outputs} == {NAME.topic(Kind.INVOCATION)}


def test_a_dlq_trigger_that_is_gone_leaves_a_dead_letter() -> None:
    core = Invoker(PLAN, {"least": LEAST, "least/dlq": LEAST}, TOPOLOGY, "0")
    core.open(0, InvokeCommit(OWNER, 0, ()))
    core.receive([action("least", 0)])
    [task] = started(core)
    core.failed(task, failure(), 0.0, 0)
    step = core.transaction(0)
    assert step is not None
    [due] = [output for output in step.outputs if output.topic == NAME.topic(Kind.ACTION)]
    without = invoker()
    without.receive([as_read(due, 1)])
    step = without.transaction(1)
    assert step is not None
    [letter] = step.outputs
    fact = dead_letter(as_read(letter, 0))
    assert (fact.reason, fact.detail) == ("spec-changed", "the sensor has no trigger `least/dlq` any more")
    assert letter.value == task.record.value


def test_retry_after_is_honoured_and_the_total_is_capped() -> None:
    core = invoker(least=Delivery(at_least_once=True, retry=RETRY))
    core.receive([action("least", 0)])
    [task] = started(core)
    core.failed(task, failure(retry_after=30), 0.0, 0)
    assert core.next_wakeup() == 30.0
    [task] = started(core, 30.0)
    core.failed(task, failure(retry_after=1000), 30.0, 0)
    assert core.next_wakeup() is None
    assert outcomes(core.transaction(0))[-1] == (0, "dead-lettered")


@pytest.mark.parametrize(
    ("delivery", "error", "outcome"),
    [
        (Delivery(at_least_once=True, retry=RETRY), failure(retriable=False), "dead-lettered"),
        (Delivery(at_least_once=True, retry=RETRY), failure(), "failed"),
        (Delivery(at_least_once=False, retry=RETRY), failure(sent=True), "dead-lettered"),
        (Delivery(at_least_once=False, retry=RETRY), failure(sent=False), "failed"),
        (Delivery(at_least_once=False), failure(sent=False), "dead-lettered"),
    ],
)
def test_what_is_tried_again(delivery: Delivery, error: ActionError, outcome: str) -> None:
    core = invoker(once=delivery, least=delivery)
    core.receive([action("least", 0)])
    core.transaction(0)
    core.committed()
    [task] = started(core)
    core.failed(task, error, 0.0, 0)
    assert outcomes(core.transaction(0))[-1] == (0, outcome)


def test_before_a_partition_is_given_up_what_was_not_begun_is_handed_back() -> None:
    core = invoker(concurrency=2)
    core.receive([action("once", 0, "x"), action("once", 1, "x"), action("least", 2, "y")])
    core.transaction(0)
    core.committed()
    assert len(started(core)) == 2
    core.release([0], 7)
    step = core.finish()
    assert outcomes(step) == [(0, "lost"), (1, "released"), (2, "lost")]
    assert step is not None
    assert step.commits[0] == InvokeCommit(OWNER, 1, []), "0 is lost, 1 and 2 are left to the next owner"


def test_nothing_more_is_begun_of_a_partition_that_is_about_to_be_given_up() -> None:
    core = invoker()
    core.receive([action("least", 0, "x"), action("least", 1, "x")])
    [task] = started(core)
    core.hold([0])
    core.succeeded(task, "ok", 1)
    assert started(core) == []
    assert core.running([0]) == 0


def test_after_an_abort_what_was_invoked_is_still_known() -> None:
    core = invoker()
    core.receive([action("least", 0), action("once", 1)])
    [task] = started(core)
    core.succeeded(task, "ok", 1)
    first = core.transaction(1)
    core.aborted()
    assert started(core) == [], "what was to be taken is not taken yet"
    second = core.transaction(2)
    assert first == second
    assert outcomes(second) == [(0, "succeeded"), (1, "taken")]
    core.committed()
    assert [task.record.offset for task in started(core)] == [1]


def test_the_outcome_of_a_dropped_partition_does_not_count() -> None:
    core = invoker()
    core.receive([action("least", 0)])
    [task] = started(core)
    core.drop(0)
    core.succeeded(task, "ok", 1)
    assert core.transaction(1) is None


def test_an_outcome_that_does_not_count_does_not_make_room_for_another() -> None:
    core = invoker(concurrency=1)
    core.receive([action("once", 0, "x")])
    core.transaction(0)
    core.committed()
    [old] = started(core)
    core.drop(0)
    core.succeeded(old, "ok", 1)
    core.open(0, InvokeCommit(OWNER, 1, ()))
    core.receive([action("once", 1, "y"), action("once", 2, "z")])
    assert outcomes(core.transaction(2)) == [(1, "taken")]


def test_an_attempt_from_before_a_restore_is_waited_for() -> None:
    core = invoker()
    core.receive([action("least", 0)])
    [old] = started(core)
    core.drop(0)
    core.open(0, InvokeCommit(OWNER, 0, ()))
    core.receive([action("least", 0)])
    assert started(core) == []
    core.succeeded(old, "ok", 1)
    assert [task.record.offset for task in started(core)] == [0]


@pytest.mark.parametrize("mode", ["once", "least"])
def test_an_attempt_from_before_a_restore_holds_up_all_of_its_lane(mode: str) -> None:
    """Found by the state machine: the next action, or an earlier one again, ran beside it."""
    core = invoker()
    core.receive([action(mode, 0), action(mode, 1)])
    core.transaction(0)
    core.committed()
    [first] = started(core)
    core.succeeded(first, "ok", 1)
    [old] = started(core)
    core.drop(0)
    core.open(0, InvokeCommit(OWNER, 2 if mode == "once" else 0, ()))
    core.receive([action(mode, offset) for offset in range(3) if mode == "least" or offset > 1])
    core.transaction(2)
    core.committed()
    assert started(core) == []
    core.succeeded(old, "ok", 3)
    assert [task.record.offset for task in started(core)] == [2 if mode == "once" else 0]


def test_an_action_of_a_removed_trigger_and_a_broken_record_are_dead_lettered() -> None:
    core = Invoker(PLAN, {"once": ONCE}, TOPOLOGY, "0")
    core.open(0, InvokeCommit(OWNER, 0, ()))
    core.receive([action("least", 0), msgspec.structs.replace(action("once", 1), headers=[])])
    step = core.transaction(0)
    assert step is not None
    assert [dead_letter(as_read(output, 0)).reason for output in step.outputs] == ["spec-changed", "invalid-record"]
    assert step.commits[0].offset == 2


def test_back_pressure_begins_before_the_metadata_is_full() -> None:
    core = invoker(concurrency=1)
    core.receive([action("least", offset, f"k{offset}") for offset in range(1000)])
    assert core.congested() == {0}
    step = core.transaction(0)
    assert step is not None
    assert len(encode_invoke(step.commits[0])) <= 4000


def test_what_was_taken_can_be_handed_back_however_much_it_is() -> None:
    """Found by the state machine: with many actions at a time the metadata had no room for all that was handed back."""
    core = invoker(concurrency=1000)
    for first in range(0, 2000, 100):
        core.receive([action("once", 2 * number, f"k{number}") for number in range(first, first + 100)])
        core.transaction(0)
        core.committed()
    core.release([0], 1)
    step = core.finish()
    assert step is not None
    assert len(encode_invoke(step.commits[0])) <= 4000
    assert step.commits[0].offset == 0


class World:
    """An action topic, its last commit, and a sink that remembers every invocation that reached it."""

    def __init__(self, log: list[Record]) -> None:
        self.log = log
        self.committed = (0, encode_invoke(InvokeCommit(OWNER, 0, ())))
        self.dead: set[int] = set()
        self.sink: list[int] = []
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        retry = RetryPolicy(steps=2, duration=0.1, jitter=0.0)
        self.core = Invoker(
            PLAN,
            {"once": Delivery(at_least_once=False, retry=retry), "least": Delivery(at_least_once=True, retry=retry)},
            TOPOLOGY,
            "0",
            concurrency=3,
        )
        commit = decode_invoke(*self.committed)
        self.core.open(0, commit)
        self.running: list[Task] = []
        self.position = commit.offset

    def do(self, what: str, number: int, how: str) -> None:
        match what:
            case "read":
                self.read(number)
            case "commit":
                self.commit()
            case "abort":
                self.core.transaction(0)
                self.core.aborted()
            case "begin":
                self.begin()
            case "end":
                self.end(number, how)
            case "crash":
                self.restart()

    def read(self, count: int) -> None:
        batch = [record for record in self.log if record.offset >= self.position][:count]
        if batch:
            self.position = batch[-1].offset + 1
            self.core.receive(batch)

    def commit(self) -> None:
        step = self.core.transaction(0)
        if step is not None:
            self.committed = (step.commits[0].offset, encode_invoke(step.commits[0]))
            self.dead |= {
                dead_letter(as_read(output, 0)).offset
                for output in step.outputs
                if output.topic == NAME.topic(Kind.DLQ)
            }
        self.core.committed()

    def begin(self) -> None:
        self.now += 0.2
        for task in self.core.startable(self.now, 0):
            self.running.append(task)
        lanes = [task.record.key for task in self.running]
        assert len(lanes) == len(set(lanes)), "one at a time within a lane"

    def end(self, index: int, how: str) -> None:
        if self.running:
            task = self.running.pop(index % len(self.running))
            if how != "unsent":
                self.sink.append(task.record.offset)
            if how == "ok":
                self.core.succeeded(task, "ok", 0)
            else:
                self.core.failed(task, failure(sent=how == "sent"), self.now, 0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["read", "commit", "abort", "begin", "begin", "end", "end", "crash"]),
        st.integers(0, 5),
        st.sampled_from(["ok", "ok", "sent", "unsent"]),
    ),
    max_size=80,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["once", "least"]), st.sampled_from("xyz")), max_size=25), steps)
def test_whatever_happens_every_action_stays_within_its_mode(
    actions: list[tuple[str, str]], schedule: list[tuple[str, int, str]]
) -> None:
    world = World([action(trigger, 2 * number, key) for number, (trigger, key) in enumerate(actions)])
    for what, number, how in schedule:
        world.do(what, number, how)
    for _ in range(10 * len(actions) + 10):
        world.read(100)
        world.commit()
        world.begin()
        world.end(0, "ok")
    counts = Counter(world.sink)
    for number, (trigger, _) in enumerate(actions):
        if trigger == "once":
            assert counts[2 * number] <= 1
        else:
            assert counts[2 * number] >= 1 or 2 * number in world.dead
    end = world.log[-1].offset + 1 if world.log else 0
    assert world.committed == (end, encode_invoke(InvokeCommit(OWNER, end, ())))


# --- pauses ---------------------------------------------------------------------------------------------------------


def reasons(step: InvokeStep | None) -> list[tuple[str, int]]:
    assert step is not None
    letters = [dead_letter(as_read(each, 0)) for each in step.outputs if each.topic == NAME.topic(Kind.DLQ)]
    return [(letter.reason, letter.offset) for letter in letters]


def redriven(record: Record, timestamp: int) -> Record:
    headers = [*record.headers, (REDRIVEN_HEADER, b"1")]
    return msgspec.structs.replace(record, headers=headers, timestamp=timestamp)


@pytest.mark.parametrize("paused", ["least", ALL])
def test_a_pause_keeps_all_that_is_not_begun(paused: str) -> None:
    core = invoker(concurrency=1)
    core.receive(
        [action("least", 0, "x"), action("least", 1, "x"), *(action("least", n, f"k{n}") for n in range(2, 6))]
    )
    [begun] = started(core)
    core.pause({paused: 7})
    core.receive([action("least", 6, "new")])
    assert reasons(core.transaction(9)) == [("paused", offset) for offset in (1, 2, 3, 4, 5, 6)]
    core.committed()
    core.succeeded(begun, "ok", 9)
    assert started(core) == []
    step = core.transaction(9)
    assert step is not None
    assert step.commits[0].offset == 7, "everything is dealt with"
    core.committed()
    assert core.idle()


def test_what_is_taken_is_finished_and_the_rest_is_kept() -> None:
    core = invoker()
    core.receive([action("once", offset, "x") for offset in range(8)])
    core.transaction(1)
    core.committed()
    core.pause({"once": 7})
    assert reasons(core.transaction(9)) == [("paused", offset) for offset in (5, 6, 7)]
    core.committed()
    for offset in range(5):
        [task] = started(core)
        assert task.record.offset == offset
        core.succeeded(task, "ok", 9)
        core.transaction(9)
        core.committed()
    assert core.idle()


def test_a_pause_frees_the_room_of_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "has_room", lambda ledger: len(ledger._unfinished) < 3)
    core = invoker()
    core.receive([*(action("least", offset, f"k{offset}") for offset in range(3)), action("once", 3)])
    assert core.congested() == {0}
    core.pause({"least": 7})
    assert core.congested() == set()
    step = core.transaction(9)
    assert (3, "taken") in outcomes(step)


def test_what_was_driven_back_is_kept_by_the_next_pause_only() -> None:
    core = invoker()
    core.pause({"least": 100})
    core.receive([redriven(action("least", 0), 101), redriven(action("least", 1, "y"), 99)])
    assert [task.record.offset for task in started(core)] == [0]
    assert reasons(core.transaction(9)) == [("paused", 1)]


def test_the_turn_of_a_task_that_is_kept_passes_to_the_one_behind_it() -> None:
    core = invoker(concurrency=1)
    core.receive([action("least", 0, "a"), action("least", 1, "b"), redriven(action("least", 2, "b"), 50)])
    [first] = started(core)
    core.pause({"least": 10})
    core.succeeded(first, "ok", 1)
    assert [task.record.offset for task in started(core)] == [2]
    assert reasons(core.transaction(9)) == [("paused", 1)]


# --- what actions may say -------------------------------------------------------------------------------------------


def test_an_error_may_say_what_no_record_can() -> None:
    """Found in a review: half a surrogate pair in an error text stopped the replica."""
    core = invoker()
    core.receive([action("least", 0)])
    [task] = started(core)
    core.failed(task, ActionError("no \ud83d", retriable=False, sent=True, status="\ud83d"), 0.0, 0)
    assert reasons(core.transaction(9)) == [("action-failed", 0)]
