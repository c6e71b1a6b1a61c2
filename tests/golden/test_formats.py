"""Bytes that are stored on users' brokers. When one of these tests fails, the change needs a migration."""

from __future__ import annotations

import msgspec
import pytest

from eventbus import formats, stateformats
from eventbus.cloudevents import from_kafka, to_json, to_kafka
from eventbus.events import Event
from eventbus.hashing import action_id, dlq_action_id, partition_of, short_digest, slot_key
from eventbus.metadata import (
    InvokeCommit,
    JoinCommit,
    Mark,
    Owner,
    decode_invoke,
    decode_join,
    decode_match,
    encode_invoke,
    encode_join,
    encode_match,
)
from eventbus.ports import Output, Record
from sensors.dlqactions import dlq_action
from sensors.match import Matcher
from sensors.plan import trigger_digest
from tests.core.builders import TOPOLOGY, event_record, make_plan
from tests.core.keyed import stateful_plan

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENT = Event.new("shop", "a", {"n": 1}, id="e-1", traceparent=PARENT)
DOCUMENT = (
    b'{"specversion":"1.0","id":"e-1","source":"shop","type":"dev.eventbus.event","subject":"a",'
    b'"datacontenttype":"application/json","traceparent":"' + PARENT.encode() + b'","data":{"n":1}}'
)
OWNER = Owner(3, "abcdefgh")


def test_event_record() -> None:
    assert to_kafka(EVENT) == (
        [
            ("ce_specversion", b"1.0"),
            ("ce_id", b"e-1"),
            ("ce_source", b"shop"),
            ("ce_type", b"dev.eventbus.event"),
            ("ce_subject", b"a"),
            ("content-type", b"application/json"),
            ("ce_traceparent", PARENT.encode()),
        ],
        b'{"n":1}',
    )
    assert to_json(from_kafka(*to_kafka(EVENT))) == DOCUMENT


def test_trigger_record() -> None:
    plan = make_plan({"both": "a && b"})
    [output] = Matcher(plan, TOPOLOGY, "0").outputs(event_record(EVENT, offset=7, partition=2, timestamp=1234))
    assert output == Output(
        "ns-bus-sensor-trigger",
        0,
        b"both\0",
        DOCUMENT,
        [
            (
                "eb_trigger",
                b'{"t":"both","d":["a"],"e":[2,7,1234],"s":"'
                + plan.triggers["both"].shape.encode()
                + b'","r":"0","w":["'
                + PARENT.encode()
                + b'",""],"v":1}',
            )
        ],
    )


def test_trigger_record_with_documents_of_its_own_for_some_dependencies() -> None:
    fact = formats.TriggerFact(
        version=1,
        trigger="t",
        dependencies=("a", "b"),
        source=formats.Source(1, 2, 3),
        shape="abcd",
        own=(formats.OwnDocument("b", msgspec.Raw(b'{"id":"1"}')),),
    )
    encoded = b'{"t":"t","d":["a","b"],"e":[1,2,3],"s":"abcd","o":[["b",{"id":"1"}]],"v":1}'
    assert formats.encode_fact(fact) == encoded
    assert formats.trigger_fact(Record("t", 0, 0, 0, None, None, [("eb_trigger", encoded)])) == fact


def test_action_record() -> None:
    plan = make_plan({"either": "a || b"})
    [output] = Matcher(plan, TOPOLOGY, "0").outputs(event_record(EVENT, offset=7, partition=2, timestamp=1234))
    action = b"f62ce1e6713e42e12a2bfe797e3e691c"
    assert output.topic == "ns-bus-sensor-action"
    assert output.key == b"either\0"
    assert output.value == b"[" + DOCUMENT + b"]"
    assert output.headers == [
        (
            "eb_action",
            b'{"id":"'
            + action
            + b'","t":"either","e":[[["a"],[2,7,1234]]],"g":1,"r":"0","w":["'
            + PARENT.encode()
            + b'",""],"v":1}',
        ),
    ]


def test_action_record_of_a_dlq_trigger() -> None:
    fact = formats.ActionFact(version=1, id="x", trigger="t", events=(), generation=1)
    given_up = Record("ns-bus-sensor-action", 2, 7, 0, b"t\0k", b"[]", [("eb_action", formats.encode_fact(fact))])
    output = dlq_action(given_up, fact, formats.Failure("x", "refused", 3, "503"), "0")
    assert (output.topic, output.partition, output.key, output.value) == ("ns-bus-sensor-action", 2, b"t/dlq\0k", b"[]")
    encoded = (
        b'{"id":"' + dlq_action_id("x").encode() + b'","t":"t/dlq","e":[],"g":1,"r":"0",'
        b'"f":["x","refused",3,"503"],"v":1}'
    )
    assert output.headers == [("eb_action", encoded)]
    assert formats.action_fact(Record("t", 0, 0, 0, None, None, output.headers)).failure == formats.Failure(
        "x", "refused", 3, "503"
    )


@pytest.mark.parametrize(
    ("key", "encoded"),
    [
        (stateformats.HeldKey("t", "k", "d", 2), b'["held","t","k","d",2]'),
        (stateformats.FiredKey("t", "k"), b'["fired","t","k"]'),
        (stateformats.SeenKey("t", "k", "shop e-1"), b'["seen","t","k","shop e-1"]'),
        (stateformats.IdentityKey(), b'["identity"]'),
        (stateformats.OriginKey("match", 3), b'["origin","match",3]'),
    ],
)
def test_state_keys(key: stateformats.StateKey, encoded: bytes) -> None:
    assert stateformats.encode_state_key(key) == encoded
    assert stateformats.decode_state_key(Record("t", 0, 0, 0, encoded, None, ())) == key


def test_records_of_a_stateful_trigger() -> None:
    rules = {"correlate": {"by": "data.n"}, "within": "10m", "count": {"a": 2}, "dedupe": {"within": "1h"}}
    plan = stateful_plan({"both": "a && b"}, {**rules, "onceWithin": "1m"})
    shape = plan.triggers["both"].shape
    assert shape == "koN2.hJDa"
    [output] = Matcher(plan, TOPOLOGY, "0").outputs(event_record(EVENT, offset=7, partition=2, timestamp=1234))
    assert (output.partition, output.key) == (0, b"both\x001")
    assert formats.header(output.headers, "eb_trigger") == (
        b'{"t":"both","d":["a"],"e":[2,7,1234],"s":"' + shape.encode() + b'","r":"0","w":["'
        + PARENT.encode()
        + b'",""],"k":"1","u":"shop e-1","v":1}'
    )  # fmt: skip
    held = stateformats.StateFact(version=1, shape=shape, source=formats.Source(2, 7, 1234), arrived=(1234, 5))
    assert formats.encode_fact(held) == b'{"s":"' + shape.encode() + b'","e":[2,7,1234],"a":[1234,5],"v":1}'
    fired = stateformats.Fired(
        version=1, shape="s", firings=(stateformats.Firing(1234, 1240), stateformats.Firing(99, 1250))
    )
    assert formats.encode_fact(fired) == b'{"s":"s","f":[[1234,1240],[99,1250]],"v":1}'
    assert formats.encode_fact(stateformats.Seen(version=1, shape="s", clock=1234)) == b'{"s":"s","c":1234,"v":1}'
    action = formats.ActionFact(version=1, id="i", trigger="t", events=(), generation=1, key="k", counted=("a",))
    assert formats.encode_fact(action) == b'{"id":"i","t":"t","e":[],"g":1,"k":"k","n":["a"],"v":1}'


def test_state_identity_and_origin_values() -> None:
    state = stateformats.StateFact(version=1, shape="abcd", source=formats.Source(1, 2, 3))
    assert formats.encode_fact(state) == b'{"s":"abcd","e":[1,2,3],"v":1}'
    identity = stateformats.Identity(
        version=1,
        namespace="n",
        bus="b",
        sensor="s",
        event_partitions=1,
        trigger_partitions=2,
        action_partitions=3,
        generation=4,
        digest="abcdefgh",
    )
    assert formats.encode_fact(identity) == (
        b'{"namespace":"n","bus":"b","sensor":"s","event_partitions":1,"trigger_partitions":2,'
        b'"action_partitions":3,"generation":4,"digest":"abcdefgh","v":1}'
    )
    assert formats.encode_fact(stateformats.Origin(version=1, offset=9)) == b'{"offset":9,"v":1}'
    assert formats.encode_fact(stateformats.Origin(version=1, offset=9, generation=2)) == b'{"offset":9,"g":2,"v":1}'


def test_invocation_and_dead_letter() -> None:
    invocation = formats.Invocation(
        version=1,
        action="id",
        sensor="n/b/s",
        trigger="t",
        attempt=2,
        outcome="failed",
        mode="atLeastOnce",
        partition=1,
        offset=5,
        replica="0",
        started=10,
        ended=20,
        status="503",
        error="no",
    )
    assert formats.encode_fact(invocation) == (
        b'{"action":"id","sensor":"n/b/s","trigger":"t","attempt":2,"outcome":"failed","mode":"atLeastOnce",'
        b'"partition":1,"offset":5,"replica":"0","started":10,"ended":20,"status":"503","error":"no","v":1}'
    )
    letter = formats.DeadLetter(
        version=1,
        reason="invalid-event",
        detail="no id",
        stage="match",
        topic="t",
        partition=1,
        offset=2,
        timestamp=3,
        replica="0",
    )
    assert formats.encode_fact(letter) == (
        b'{"reason":"invalid-event","detail":"no id","stage":"match","topic":"t","partition":1,"offset":2,'
        b'"timestamp":3,"replica":"0","v":1}'
    )


def test_commit_metadata() -> None:
    assert encode_match(OWNER) == "m1;3;abcdefgh"
    assert decode_match("m1;3;abcdefgh") == OWNER
    join = JoinCommit(OWNER, 120, 5000, {"AbCdEf": Mark("wxyz", 100), "GhIjKl": Mark("wxyz", 117)})
    assert encode_join(join) == "j1;3;abcdefgh;120;5000;AbCdEfwxyz0,GhIjKlwxyz17"
    assert decode_join(100, "j1;3;abcdefgh;120;5000;AbCdEfwxyz0,GhIjKlwxyz17") == join
    invoke = InvokeCommit(OWNER, 10, [(12, 15), (20, 21)])
    assert encode_invoke(invoke) == "i1;3;abcdefgh;2.3.5.1"
    assert decode_invoke(10, "i1;3;abcdefgh;2.3.5.1") == invoke


def test_hashes() -> None:
    assert [partition_of(key, 12) for key in (b"", b"a", b"trigger\0", b"trigger\0key")] == [0, 3, 3, 11]
    assert slot_key("t", b"k") == b"t\0k"
    assert trigger_digest("both") == "ZlgCPV"
    assert short_digest("a", "bc", length=8) != short_digest("ab", "c", length=8)
    assert make_plan({"t": "(b && a) || c"}).triggers["t"].shape == "oNSz"
    assert action_id("n/b/s", "t", [("topic", 1, 2, "source", "id")]) == "7bee3efaf6028fb2d6a061a98c8d7a84"
    assert dlq_action_id("7bee3efaf6028fb2d6a061a98c8d7a84") == "a30ee0ea10e2db48c19c8df77b4d9a9a"
