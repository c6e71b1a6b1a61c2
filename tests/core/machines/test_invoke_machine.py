"""The invoke stage's core in a world where anything may happen between two calls, against what it promises."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from itertools import pairwise, product
from typing import NamedTuple, TypeAlias

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from eventbus import metadata
from eventbus.events import Event
from eventbus.formats import Invocation, dead_letter
from eventbus.metadata import InvokeCommit, decode_invoke, encode_invoke
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.actions.base import ActionError
from sensors.invoke import Invoker, InvokeStep
from sensors.match import Matcher
from sensors.outcomes import DEAD_LETTERED, LOST, RELEASED, SUCCEEDED, TAKEN
from sensors.retry import RetryPolicy
from sensors.tasks import Delivery, RateLimit, State, Task
from tests.core.builders import NAME, OWNER, as_read, event_record, make_plan
from tests.core.machines.common import GAPS, INVOKE_HEAD, Log, TightMachine, as_test, one_of_many

TOPOLOGY = Topology(
    event_partitions=1, trigger_partitions=1, action_partitions=2, invocation_partitions=1, dlq_partitions=1
)
PARTITIONS = range(TOPOLOGY.action_partitions)
REPLICAS = range(2)
RETRY = RetryPolicy(steps=3, duration=1.0, jitter=0.0, total=1e9)
DELIVERIES = {
    "most": Delivery(at_least_once=False, retry=RETRY),
    "least": Delivery(at_least_once=True, retry=RETRY),
    "exact": Delivery(at_least_once=False, exactly_once=True),
}
DEPENDENCIES = dict(zip((*DELIVERIES, "removed", "unreadable"), "abcde", strict=True))
PLAN = make_plan(DEPENDENCIES, "abcde")
MATCHER = Matcher(PLAN, TOPOLOGY, "match")
REFUSED = "z"
"""Of the actions with this key no record can be made, where the action is to write one."""
EPSILON = 1e-5
LOST_TO_A_KILL = 1 + 4
"""Per lane, at most: the one that runs and those that were taken ahead."""


class Arriving(NamedTuple):
    trigger: str
    key: str
    gap: int = 0


class Failure(NamedTuple):
    retriable: bool
    sent: bool

    def error(self) -> ActionError:
        return ActionError("no", retriable=self.retriable, sent=self.sent)


class End(NamedTuple):
    """One of the attempts that run ends."""

    which: int
    failure: Failure | None = None


class Pause(NamedTuple):
    seconds: int


class Move(NamedTuple):
    """A partition gets another owner, or the same one again."""

    number: int
    to: int
    written: bool = False
    """Whether the old owner's last transaction is."""


Happening: TypeAlias = Arriving | End | Pause


class Running(NamedTuple):
    task: Task
    epoch: int


class Story(msgspec.Struct):
    """What has really happened to one action, whoever knows of it."""

    record: Record
    trigger: str
    starts: int = 0
    may_have_been_sent: bool = False
    cut_off: bool = False
    """It was taken, and a kill or a loss came before anybody could write how it ended."""
    notes: list[str] = msgspec.field(default_factory=list)
    letters: int = 0
    written: int = 0

    @property
    def lane(self) -> tuple[int, bytes | None]:
        return self.record.partition, self.record.key

    @property
    def usable(self) -> bool:
        return self.trigger in DELIVERIES

    @property
    def at_most_once(self) -> bool:
        """Said here once more, so that a bug in the product's own idea of it is seen."""
        return self.trigger == "most"

    @property
    def unwritable(self) -> bool:
        return (self.record.key or b"").endswith(REFUSED.encode())

    @property
    def endings(self) -> int:
        return self.notes.count(SUCCEEDED) + self.notes.count(DEAD_LETTERED)

    def may_be_tried_again(self, failure: Failure) -> bool:
        return failure.retriable and not (failure.sent and self.at_most_once)

    def taken_without_an_ending(self) -> bool:
        excused = self.endings or self.cut_off or LOST in self.notes
        return self.at_most_once and self.has_to_be_finished() and not excused

    def has_to_be_finished(self) -> bool:
        """What is durable of it tells whether its offset has to be marked as finished."""
        if not self.usable:
            return self.letters == 1
        if self.at_most_once:
            return [note for note in self.notes if note in (TAKEN, RELEASED)][-1:] == [TAKEN]
        return self.endings == 1


class Partition:
    """What is durable of one partition, and what its present owner knows beyond that."""

    def __init__(self, owner: int) -> None:
        self.log = Log()
        self.owner = owner
        self.committed = (0, encode_invoke(InvokeCommit(OWNER, 0, ())))
        self.epoch = 0
        self.fetched = 0
        self.held = False
        self.done: set[int] = set()

    def finished(self, offset: int) -> bool:
        commit = decode_invoke(*self.committed)
        return offset < commit.offset or any(start <= offset < end for start, end in commit.finished)

    def at_rest(self) -> bool:
        return self.committed == (self.log.end, encode_invoke(InvokeCommit(OWNER, self.log.end, ())))

    def reopen(self, owner: int) -> InvokeCommit:
        commit = decode_invoke(*self.committed)
        self.owner = owner
        self.epoch += 1
        self.held = False
        self.fetched = commit.offset
        self.done = {record.offset for record in self.log.records if self.finished(record.offset)}
        return commit


class Replica:
    def __init__(self, concurrency: int, limit: RateLimit | None) -> None:
        deliveries = {name: msgspec.structs.replace(each, limit=limit) for name, each in DELIVERIES.items()}
        self.core = Invoker(PLAN, deliveries, TOPOLOGY, "replica", concurrency=concurrency)
        self.running: list[Running] = []
        self.started: defaultdict[str, list[float]] = defaultdict(list)
        """When attempts of each trigger began here."""


TRIGGERS = ["most", "least", "most", "least", "exact", "removed", "unreadable"]
UNWRITABLE = Failure(retriable=False, sent=False)
FAILURES = [Failure(*how) for how in ((True, False), (True, True), (False, True))]
HAPPENINGS: list[Happening] = [
    *(Arriving(*parts) for parts in product(TRIGGERS, ["x", "x", "y", REFUSED], GAPS)),
    *[End(*parts) for parts in product(range(3), [None, None, *FAILURES])] * 4,
    *[Pause(2)] * 10,
]
turns = st.lists(one_of_many(HAPPENINGS), max_size=8)
"""Every rule brings one: hypothesis leaves out whole rules at random, and without actions nothing happens."""
replicas = st.sampled_from(REPLICAS)
outcomes = st.sampled_from([*product(REPLICAS, [False, True])])
moves = st.sampled_from([Move(*parts) for parts in product(PARTITIONS, REPLICAS, [False, True])])


class InvokeMachine(TightMachine):
    """A log of actions and two replicas that share its partitions."""

    @initialize(
        concurrency=st.sampled_from([3, 2, 1]),
        batch=st.sampled_from([100, 3, 1]),
        room=st.sampled_from([4000, 12]),
        limit=st.sampled_from([None, RateLimit(2, 3.0)]),
    )
    def begin(self, concurrency: int, batch: int, room: int, limit: RateLimit | None) -> None:
        self.limit_metadata(INVOKE_HEAD, room)
        self.batch = batch
        self.concurrency = concurrency
        self.limit = limit
        self.now = 0.0
        self.started: defaultdict[str, list[float]] = defaultdict(list)
        self.stories: dict[tuple[int, int], Story] = {}
        self.partitions = [Partition(owner) for owner in REPLICAS]
        self.replicas = [Replica(concurrency, limit) for _ in REPLICAS]
        for number in PARTITIONS:
            self.open(number, number)

    # --- what happens -----------------------------------------------------------------------------------------------

    @rule(replica=replicas, turn=turns)
    def a_transaction_commits(self, replica: int, turn: list[Happening]) -> None:
        self.take(turn, replica)
        self.commit(replica)
        self.start(replica)

    @rule(replica=replicas, turn=turns)
    def a_transaction_aborts(self, replica: int, turn: list[Happening]) -> None:
        self.take(turn, replica)
        core = self.replicas[replica].core
        if core.transaction(self.now_ms) is not None:
            core.aborted()

    @rule(outcome=outcomes, turn=turns)
    def nobody_knows_whether_a_transaction_was_written(self, outcome: tuple[int, bool], turn: list[Happening]) -> None:
        replica = self.take_up_to_the_last_transaction(turn, outcome)
        for number in self.owned(replica):
            self.replicas[replica].core.drop(number)
            self.reopen_after_a_loss(number, replica)

    @rule(outcome=outcomes, turn=turns)
    def a_replica_is_killed(self, outcome: tuple[int, bool], turn: list[Happening]) -> None:
        replica = self.take_up_to_the_last_transaction(turn, outcome)
        for running in self.replicas[replica].running:
            self.story(running.task).may_have_been_sent = True
        self.replicas[replica] = Replica(self.concurrency, self.limit)
        for number in self.owned(replica):
            self.reopen_after_a_loss(number, replica)

    @rule(move=moves, turn=turns)
    def a_partition_is_revoked(self, move: Move, turn: list[Happening]) -> None:
        partition = self.partitions[move.number]
        core = self.replicas[partition.owner].core
        core.hold([move.number])
        partition.held = True
        self.take(turn, partition.owner)
        core.release([move.number], self.now_ms)
        step = core.finish()
        if step is not None and not move.written:
            core.drop(move.number)
            core.aborted()
            self.reopen_after_a_loss(move.number, move.to)
            return
        if step is not None:
            self.write(step)
        core.committed()
        core.drop(move.number)
        for task, epoch in self.replicas[partition.owner].running:
            if task.record.partition == move.number and epoch == partition.epoch and self.story(task).at_most_once:
                assert LOST in self.story(task).notes
        assert not any(story.taken_without_an_ending() for story in self.stories_of(move.number))
        self.open(move.number, move.to)

    @rule(move=moves, turn=turns)
    def a_partition_is_lost(self, move: Move, turn: list[Happening]) -> None:
        replica = self.partitions[move.number].owner
        self.take(turn, replica)
        self.replicas[replica].core.drop(move.number)
        self.reopen_after_a_loss(move.number, move.to)

    # --- what follows from it ---------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000)

    def take(self, turn: list[Happening], replica: int) -> None:
        for happening in turn:
            match happening:
                case Arriving():
                    self.append(happening)
                case End():
                    self.end(self.replicas[replica], happening)
                case Pause(seconds):
                    self.now += seconds
            self.start(replica)
        self.read(replica)
        self.start(replica)

    def take_up_to_the_last_transaction(self, turn: list[Happening], outcome: tuple[int, bool]) -> int:
        replica, written = outcome
        self.take(turn, replica)
        step = self.replicas[replica].core.transaction(self.now_ms)
        if step is not None and written:
            self.write(step)
        return replica

    def append(self, arriving: Arriving) -> None:
        offset = len(self.stories)
        event = Event.new("shop", DEPENDENCIES[arriving.trigger], id=f"{offset}", partitionkey=arriving.key)
        [output] = MATCHER.outputs(event_record(event, offset=offset))
        log = self.partitions[output.partition].log
        record = as_read(output, log.next_offset(arriving.gap))
        if arriving.trigger == "unreadable":
            record = msgspec.structs.replace(record, headers=[])
        log.append(record)
        self.stories[record.partition, record.offset] = Story(record, arriving.trigger)

    def owned(self, replica: int) -> list[int]:
        return [number for number in PARTITIONS if self.partitions[number].owner == replica]

    def read(self, replica: int) -> None:
        core = self.replicas[replica].core
        for number in self.owned(replica):
            partition = self.partitions[number]
            if number not in core.congested():
                records = partition.log.read(partition.fetched, self.batch)
                partition.fetched = records[-1].offset + 1 if records else partition.fetched
                core.receive(records)

    def start(self, replica: int) -> None:
        me = self.replicas[replica]
        for task in me.core.startable(self.now, self.now_ms):
            story = self.story(task)
            self.check_start(me, story)
            self.check_limit(me, story.trigger)
            story.starts += 1
            me.running.append(Running(task, self.partitions[task.record.partition].epoch))
            assert len(me.running) <= self.concurrency
            if story.trigger == "exact":
                self.end_one(me, len(me.running) - 1, UNWRITABLE if story.unwritable else None)

    def end(self, me: Replica, end: End) -> None:
        if me.running:
            self.end_one(me, end.which % len(me.running), end.failure)

    def end_one(self, me: Replica, which: int, failure: Failure | None) -> None:
        task, epoch = me.running.pop(which)
        story = self.story(task)
        partition = self.partitions[task.record.partition]
        if failure is None:
            written = [Output("elsewhere", task.record.partition, None, b"%d" % task.record.offset)]
            me.core.succeeded(task, "ok", self.now_ms, written if story.trigger == "exact" else ())
        else:
            me.core.failed(task, failure.error(), self.now, self.now_ms)
        story.may_have_been_sent |= failure is None or failure.sent
        if epoch == partition.epoch:
            again = failure is not None and story.may_be_tried_again(failure) and task.attempt < RETRY.steps
            assert (task.state is State.WAITING) == again
            if not again:
                partition.done.add(task.record.offset)

    def commit(self, replica: int) -> None:
        core = self.replicas[replica].core
        step = core.transaction(self.now_ms)
        if step is not None:
            self.write(step)
            core.committed()

    def open(self, number: int, owner: int) -> None:
        self.replicas[owner].core.open(number, self.partitions[number].reopen(owner))

    def reopen_after_a_loss(self, number: int, owner: int) -> None:
        """What was taken and has no ending will never have one."""
        unfinished = [story for story in self.stories_of(number) if story.taken_without_an_ending()]
        for story in unfinished:
            story.cut_off = True
        cost = Counter(story.lane for story in unfinished)
        assert all(count <= LOST_TO_A_KILL for count in cost.values())
        self.open(number, owner)

    def write(self, step: InvokeStep) -> None:
        for output in step.outputs:
            value = output.value or b""
            if output.topic == NAME.topic(Kind.INVOCATION):
                note = msgspec.json.decode(value, type=Invocation)
                self.stories[note.partition, note.offset].notes.append(note.outcome)
            elif output.topic == NAME.topic(Kind.DLQ):
                letter = dead_letter(as_read(output, 0))
                self.stories[letter.partition, letter.offset].letters += 1
            else:
                self.stories[output.partition, int(value)].written += 1
        for number, commit in step.commits.items():
            encoded = encode_invoke(commit)
            assert len(encoded) <= metadata.LIMIT
            self.partitions[number].committed = (commit.offset, encoded)
            self.check_commit(number)

    # --- what has to be true ----------------------------------------------------------------------------------------

    def check_start(self, me: Replica, story: Story) -> None:
        partition, offset = self.partitions[story.record.partition], story.record.offset
        lane = [other for other in self.stories_of(story.record.partition) if other.lane == story.lane]
        assert all(self.story(running.task).lane != story.lane for running in me.running), "one at a time in a lane"
        assert not partition.held, "nothing is begun of what is to be given up"
        assert offset not in partition.done
        assert all(other.record.offset in partition.done for other in lane if other.record.offset < offset)
        if story.at_most_once:
            assert partition.finished(offset), "it is marked before it is invoked"
            assert not story.may_have_been_sent, "nothing that may have been sent is invoked again"
            assert all(self.story(other.task) is not story for replica in self.replicas for other in replica.running)
            assert not any(other.starts for other in lane if other.record.offset > offset)

    def check_limit(self, me: Replica, trigger: str) -> None:
        """Evenly spaced within a replica; all of them together may begin one more."""
        me.started[trigger].append(self.now)
        self.started[trigger].append(self.now)
        if self.limit is not None:
            interval = self.limit.seconds / self.limit.requests
            assert all(later - earlier >= interval - EPSILON for earlier, later in pairwise(me.started[trigger]))
            recent = [moment for moment in self.started[trigger] if moment > self.now - self.limit.seconds + EPSILON]
            assert len(recent) <= self.limit.requests + 1

    def check_commit(self, number: int) -> None:
        partition = self.partitions[number]
        for story in self.stories_of(number):
            assert partition.finished(story.record.offset) == story.has_to_be_finished(), story
            assert story.endings <= 1
            if story.usable:
                assert story.letters == story.notes.count(DEAD_LETTERED)
                assert story.written == (story.notes.count(SUCCEEDED) if story.trigger == "exact" else 0)

    def teardown(self) -> None:
        try:
            if sys.exception() is None:  # else it has failed already, or hypothesis gave the run up
                self.come_to_rest()
        finally:
            super().teardown()

    def come_to_rest(self) -> None:
        """From here on everything succeeds."""
        for _ in range((12 if self.limit else 2) * len(self.stories) + 10):
            self.now += 10
            for replica in REPLICAS:
                self.read(replica)
                for _ in range(2):
                    self.start(replica)
                    while self.replicas[replica].running:
                        self.end(self.replicas[replica], End(0))
                    self.commit(replica)
            if all(partition.at_rest() for partition in self.partitions) and all(
                replica.core.idle() for replica in self.replicas
            ):
                break
        assert all(partition.at_rest() for partition in self.partitions)
        assert all(replica.core.idle() for replica in self.replicas)
        for story in self.stories.values():
            assert not story.usable or story.endings == 1 or story.cut_off or LOST in story.notes

    def story(self, task: Task) -> Story:
        return self.stories[task.record.partition, task.record.offset]

    def stories_of(self, number: int) -> list[Story]:
        return [story for (partition, _), story in self.stories.items() if partition == number]


TestInvoke = as_test(InvokeMachine)
