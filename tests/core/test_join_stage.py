"""The join stage as the loop drives it: what belongs into one transaction."""

from __future__ import annotations

import msgspec

from eventbus.clock import ManualClock
from eventbus.cloudevents import to_json
from eventbus.events import Event
from eventbus.formats import TRIGGER_HEADER, VERSION, Source, TriggerFact, encode_fact
from eventbus.metadata import JoinCommit, Mark, Owner, decode_join, encode_join
from eventbus.names import Kind
from eventbus.ports import Committed, Record
from sensors.metrics import SensorMetrics
from sensors.runner.ownership import identity_of, identity_output
from sensors.runner.stages import JoinStage
from tests.core.builders import NAME, TOPOLOGY, as_read, make_plan

OLD = make_plan({"t": "a && b", "u": "a && c"})
NEW = make_plan({"u": "a && c"}, owner=Owner(2, "BBBBBBBB"))


def record(trigger: str, offset: int) -> Record:
    fact = TriggerFact(
        version=VERSION,
        trigger=trigger,
        dependencies=("a",),
        source=Source(0, offset, 0),
        shape=OLD.triggers[trigger].shape,
    )
    document = to_json(Event.new("shop", "a", id=f"e{offset}"))
    return Record(NAME.topic(Kind.TRIGGER), 0, offset, 0, None, document, [(TRIGGER_HEADER, encode_fact(fact))])


def test_a_new_generation_takes_over_in_the_transaction_that_parks_what_does_not_fit() -> None:
    """Found by the simulator: a generation was in the commit that had not parked anything yet, and never did."""
    marks = {trigger.digest: Mark(trigger.shape, 0 if name == "t" else 1) for name, trigger in OLD.triggers.items()}
    commit = JoinCommit(OLD.owner, 2, 0, marks)
    metrics = SensorMetrics(NAME, ManualClock())
    stage = JoinStage(NEW, TOPOLOGY, "replica", metrics, horizon_records=100, horizon_ms=1000)
    stage.opened(0, Committed(commit.offset, encode_join(commit)))
    stage.load(0, as_read(identity_output(NAME, identity_of(OLD, TOPOLOGY), 0), 0))
    assert stage.restored(0, (0, 2)) == 0

    assert not list(stage.work([])), "nothing is known yet about what is held"
    assert not list(stage.work([record("t", 0)]))
    (transaction,) = stage.work([record("u", 1)])

    assert [output.topic for output in transaction.outputs] == [NAME.topic(Kind.STATE), NAME.topic(Kind.DLQ)]
    identity = msgspec.json.decode(transaction.outputs[0].value or b"")
    assert identity["generation"] == NEW.owner.generation
    (committed,) = transaction.commits
    assert decode_join(committed.offset, committed.metadata).owner == NEW.owner
