"""A sensor that has worked, made without a log: what it has left behind, and hands to tamper with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from eventbus.cloudevents import to_kafka
from eventbus.events import Event
from eventbus.formats import VERSION, Failure, Invocation, action_fact, encode_fact
from eventbus.metadata import InvokeCommit, JoinCommit, Owner, encode_invoke, encode_join, encode_match
from eventbus.names import BusName, Kind, Stage
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.audit.commits import SeenCommit
from sensors.audit.invocations import recorded_calls
from sensors.audit.verdict import Evidence, Verdict, judge
from sensors.deadletters import ACTION_FAILED, DeadLetters
from sensors.dlqactions import dlq_action
from sensors.join import JoinPartition
from sensors.match import Matcher
from sensors.plan import SensorPlan
from sensors.spark.history import EVENT, Commits, History, MatchCommit
from sensors.spark.records import Missing, Slice
from sensors.spark.workers import Deputy
from sensors.spec.loader import make_manifest
from tests.spark.manifests import logged, sensor
from tests.spark.rows import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUS = BusName("ns", "bus")
PARTITIONS = 2
TOPOLOGY = Topology(
    event_partitions=PARTITIONS,
    trigger_partitions=PARTITIONS,
    action_partitions=PARTITIONS,
    invocation_partitions=1,
    dlq_partitions=1,
)
REPLICA = "0"
GAP = 3
"""Every so many records a transaction ends, and its marker takes an offset."""
EVENTS = 61
MANIFEST = sensor(
    "s",
    dict.fromkeys(("a", "b", "c", "idle"), "shop"),
    [
        {**logged("both", "a && b"), "atLeastOnce": True},
        logged("each", "a || b"),
        {
            **logged("keyed", "a && c", correlate={"by": "data.order"}, within="10s", onExpire="deadLetter"),
            "atLeastOnce": True,
            "dlqTrigger": {"template": {"name": "sorry", "log": {}}, "atLeastOnce": True},
        },
    ],
)
"""One that joins, one for which every event is enough, and one that joins by key and forgets after a while."""
AT_MOST_ONCE = "each"


class Worked:
    """What it has left behind. Records are lists, to be changed at will."""

    manifest: ClassVar[dict[str, Any]] = MANIFEST

    def __init__(self, generation: int = 1) -> None:
        metadata = {"name": "s", "generation": generation}
        self.deputy = Deputy(make_manifest({**self.manifest, "metadata": metadata}), BUS, TOPOLOGY)
        self.plan: SensorPlan = self.deputy.plan
        self.name = self.plan.name
        self.origins = {0: dict.fromkeys(range(PARTITIONS), 0)}
        self.missing: list[Missing] = []
        self.events = _in_log(self.sent(), BUS.event_topic)
        matched = [output for event in self.events for output in self.matcher().outputs(event)]
        self.triggers = self.topic(Kind.TRIGGER, matched)
        self.join_commits: dict[int, JoinCommit] = {}
        joined: list[Output] = []
        self.held = set()
        for partition in range(PARTITIONS):
            join = JoinPartition(self.plan, TOPOLOGY, partition, JoinCommit(self.owner, 0, 0, {}), REPLICA)
            step = join.step([each for each in self.triggers if each.partition == partition])
            assert step is not None
            joined += step.outputs
            self.join_commits[partition] = step.commit
            self.held |= {
                (trigger, key, dependency, event.source)
                for trigger in self.plan.triggers
                for key, dependency, event in join.held(trigger)
            }
        self.letters = self.topic(Kind.DLQ, [*matched, *joined])
        outputs = [each for each in [*matched, *joined] if each.topic == self.name.topic(Kind.ACTION)]
        given_up = next(each for each in self.topic(Kind.ACTION, outputs) if action_fact(each).trigger == "keyed")
        fact = action_fact(given_up)
        outputs.append(dlq_action(given_up, fact, Failure(fact.id, "refused", 1), REPLICA))
        self.actions = self.topic(Kind.ACTION, outputs)
        self.notes: list[Invocation] = []
        for record in self.actions:
            self.invoke(record, failed=action_fact(record).id == fact.id)

    # --- hands --------------------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        return self.plan.owner

    def sent(self) -> list[Record]:
        """The events, in the order in which the match stage came to them."""
        return [_event(number) for number in range(EVENTS)]

    def matcher(self, replica: str = REPLICA) -> Matcher:
        return Matcher(self.plan, TOPOLOGY, replica)

    def topic(self, kind: Kind, outputs: Iterable[Output]) -> list[Record]:
        topic = self.name.topic(kind)
        return _in_log([each for each in outputs if each.topic == topic], topic)

    def action(self, trigger: str, which: int = 0) -> Record:
        return [record for record in self.actions if action_fact(record).trigger == trigger][which]

    def forget_invocations(self, record: Record) -> None:
        self.notes = [each for each in self.notes if each.action != action_fact(record).id]

    def notes_of(self, record: Record) -> list[Invocation]:
        return [each for each in self.notes if each.action == action_fact(record).id]

    def invoke(self, record: Record, *, failed: bool = False) -> None:
        if action_fact(record).trigger == AT_MOST_ONCE:
            self.notes.append(note(record, "taken"))
        self.notes.append(note(record, "dead-lettered" if failed else "succeeded", status="500" if failed else "204"))
        if failed:
            letters = DeadLetters.of_stage(self.name, Stage.INVOKE, TOPOLOGY, REPLICA)
            fact = action_fact(record)
            letter = letters.of(record, ACTION_FAILED, "refused", trigger=fact.trigger, action=fact.id, attempts=1)
            self.letters.append(_as_read(letter, 10_000 + len(self.letters)))

    # --- as evidence --------------------------------------------------------------------------------------------------

    def logs(self) -> dict[str, Sequence[Record]]:
        """By what they are of; what it holds is in no log here."""
        return {
            EVENT: self.events,
            Kind.TRIGGER: self.triggers,
            Kind.ACTION: self.actions,
            Kind.INVOCATION: self.invocations(),
            Kind.DLQ: self.letters,
        }

    def history(self, spark: SparkSession, *, since: int | None = None) -> History:
        lists = {**self.logs(), Kind.STATE: []}
        topics = {EVENT: BUS.event_topic} | {kind.value: self.name.topic(kind) for kind in Kind}
        return History(
            name=self.name,
            tables={kind: table(spark, records) for kind, records in lists.items()},
            slices={kind: _slice(topics[kind], records, since) for kind, records in lists.items()},
            commits=Commits(
                {p: MatchCommit(self.owner, _end(self.events, p)) for p in range(PARTITIONS)},
                self.join_commits,
                {p: InvokeCommit(self.owner, _end(self.actions, p), ()) for p in range(PARTITIONS)},
            ),
            missing=self.missing,
            origins=self.origins,
        )

    def verdict(self) -> Verdict:
        """What the checks say that have all of it in their hands."""
        return judge(
            Evidence(
                plans={self.owner.generation: self.plan},
                events=self.events,
                triggers=self.triggers,
                actions=self.actions,
                invocations=self.invocations(),
                letters=self.letters,
                commits=[*self._commits()],
                held=self.held,
                calls=recorded_calls(self.notes),
                mishaps=(),
                horizon=10_000,
            )
        )

    def invocations(self) -> list[Record]:
        topic = self.name.topic(Kind.INVOCATION)
        return [
            Record(topic, 0, number, each.ended, each.action.encode(), encode_fact(each), [])
            for number, each in enumerate(self.notes)
        ]

    def _commits(self) -> Iterable[SeenCommit]:
        for partition in range(PARTITIONS):
            end = _end(self.actions, partition)
            join = self.join_commits[partition]
            yield SeenCommit(Stage.MATCH, partition, _end(self.events, partition), encode_match(self.owner))
            yield SeenCommit(Stage.JOIN, partition, join.offset, encode_join(join))
            yield SeenCommit(Stage.INVOKE, partition, end, encode_invoke(InvokeCommit(self.owner, end, ())))


def note(
    record: Record, outcome: str, *, at: int | None = None, replica: str = REPLICA, status: str | None = None
) -> Invocation:
    fact = action_fact(record)
    moment = record.timestamp + 10 if at is None else at
    return Invocation(
        version=VERSION,
        action=fact.id,
        sensor="ns/bus/s",
        trigger=fact.trigger,
        attempt=0 if outcome == "taken" else 1,
        outcome=outcome,
        mode="atMostOnce" if fact.trigger == AT_MOST_ONCE else "atLeastOnce",
        partition=record.partition,
        offset=record.offset,
        replica=replica,
        started=moment,
        ended=moment,
        status=status,
    )


def event(number: int) -> Event:
    """`a`, `b`, `c` in turn; the orders of `c` are never those of an `a` that came long ago."""
    name = ("a", "b", "c", "unwanted")[number % 4]
    order = f"o{number // 8}"
    return Event.new("shop", name, {"order": order}, id=f"e{number}", partitionkey=f"k{number % 3}")


def _event(number: int) -> Record:
    made = event(number) if number != EVENTS // 2 else None
    timestamp = 1_000_000 + 1000 * number
    if made is None:  # nobody can read this one
        return Record(BUS.event_topic, 0, 0, timestamp, None, b"?", [("ce_specversion", b"1.0")])
    headers, value = to_kafka(made)
    return Record(BUS.event_topic, number % PARTITIONS, 0, timestamp, made.key, value, headers)


def _in_log(written: Sequence[Record | Output], topic: str) -> list[Record]:
    """Offsets as Kafka gives them: the markers of transactions take some."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    records = []
    for number, each in enumerate(written):
        timestamp = each.timestamp if isinstance(each, Record) else 2_000_000 + 10 * number
        offset = ends[each.partition]
        records.append(Record(topic, each.partition, offset, timestamp, each.key, each.value, each.headers))
        ends[each.partition] = offset + (2 if offset % GAP == GAP - 1 else 1)
    return records


def _as_read(output: Output, offset: int) -> Record:
    return Record(output.topic, output.partition, offset, 3_000_000, output.key, output.value, output.headers)


def _end(records: Sequence[Record], partition: int) -> int:
    return max((each.offset + 1 for each in records if each.partition == partition), default=0)


def _slice(topic: str, records: Sequence[Record], since: int | None) -> Slice:
    spans = {}
    for partition in range(PARTITIONS):
        later = [each.offset for each in records if each.partition == partition and each.timestamp >= (since or 0)]
        spans[partition] = (0 if since is None else min(later, default=0), _end(records, partition))
    return Slice(topic, spans, spans, complete=since is None)
