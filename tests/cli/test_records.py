"""Records in words: every kind, and whatever else may be on a topic."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventbus.cli.options import View
from eventbus.cli.records import show, topic_of
from eventbus.events import Event
from eventbus.formats import VERSION, Invocation, encode_fact
from eventbus.names import BusName, SensorName, Stage
from eventbus.ports import Record
from sensors.deadletters import ACTION_FAILED, DeadLetters
from sensors.match import Matcher
from sensors.redrive import mark
from tests.core.builders import NAME, TOPOLOGY, as_read, event_record, make_plan

EVENT = Event.new("shop", "a", {"n": 1}, id="e-1", partitionkey="k")


def _words(view: View, record: Record) -> list[str]:
    """A record's line, without time and place."""
    return [text for text, _ in show(view, record).line[2:] if text]


def test_an_event() -> None:
    record = event_record(EVENT, offset=7, partition=2)
    assert _words(View.EVENTS, record) == ["shop/a", "e-1", "key=k", '{"n":1}']
    facts = msgspec.to_builtins(show(View.EVENTS, record).facts | {"event": None})
    assert facts == {"topic": "ns-bus", "partition": 2, "offset": 7, "timestamp": 1000, "key": "k", "event": None}


def test_long_data_is_cut_off() -> None:
    line = _words(View.EVENTS, event_record(Event.new("shop", "a", "x" * 1000)))
    assert line[-1] == '"' + "x" * 159 + "…"


def test_a_trigger_record() -> None:
    [output] = Matcher(make_plan({"both": "a && b"}), TOPOLOGY, "0").outputs(event_record(EVENT))
    assert _words(View.TRIGGERS, as_read(output, 3)) == ["both", "a=e-1", "shop/a", '{"n":1}']


def test_an_action_record() -> None:
    [output] = Matcher(make_plan({"either": "a || b"}), TOPOLOGY, "0").outputs(event_record(EVENT))
    facts = show(View.ACTIONS, as_read(output, 3)).facts
    assert _words(View.ACTIONS, as_read(output, 3)) == ["either", facts["action"], "a=e-1"]
    document = msgspec.json.decode(msgspec.json.encode(facts))["events"]["a"]
    assert (document["id"], document["data"]) == ("e-1", {"n": 1})


def test_an_invocation() -> None:
    invocation = Invocation(
        version=VERSION,
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
    record = Record("topic", 3, 9, 1000, b"id", encode_fact(invocation), ())
    assert _words(View.INVOCATIONS, record) == ["t", "id", "attempt 2", "failed", "503", "10 ms", "no"]
    facts = show(View.INVOCATIONS, record).facts
    assert (facts["partition"], facts["offset"], facts["invocation"]) == (3, 9, invocation)


def test_a_dead_letter_and_the_mark_that_it_was_driven_back() -> None:
    letters = DeadLetters.of_stage(NAME, Stage.INVOKE, TOPOLOGY, "0")
    letter = as_read(letters.of(event_record(EVENT, offset=7), ACTION_FAILED, "no", trigger="t"), 4)
    assert _words(View.DLQ, letter) == ["action-failed", "t", "from ns-bus[0]@7", "no"]
    assert _words(View.DLQ, as_read(mark(letter, 5), 5)) == ["redriven", "0:4"]


HEADERS = ["ce_id", "ce_source", "ce_type", "ce_specversion", "content-type", "eb_action", "eb_trigger", "eb_dlq"]
STRUCTURED = ("content-type", b"application/cloudevents+json")
ACTION = ("eb_action", b'{"id":"i","t":"t","e":[[["a"],[0,0,0]]],"g":1,"v":1}')
TRIGGER = ("eb_trigger", b'{"t":"t","d":["a"],"e":[0,0,0],"s":"s","v":1}')
BAD_DOCUMENT = b'{"specversion":"1.0","id":"\xff","source":"s","type":"t"}'


@pytest.mark.parametrize("view", View)
@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary() | st.sampled_from([b"[]", b"{}", BAD_DOCUMENT]),
    names=st.lists(
        st.tuples(
            st.sampled_from([*HEADERS, "eb_redriven_mark", "other"]),
            st.none() | st.binary() | st.sampled_from([b"1.0", b'{"v":2}', b'{"v":1}', b"[]"]),
        )
    ),
)
@example(key=None, value=BAD_DOCUMENT, names=[STRUCTURED])
@example(key=None, value=BAD_DOCUMENT, names=[TRIGGER])
@example(key=None, value=b"[" + BAD_DOCUMENT + b"]", names=[ACTION])
@example(key=None, value=b"[]", names=[ACTION])
def test_nothing_that_is_read_can_break_it(
    view: View, key: bytes | None, value: bytes | None, names: list[tuple[str, bytes | None]]
) -> None:
    shown = show(view, Record("topic", 0, 1, -1, key, value, names))
    assert msgspec.json.decode(msgspec.json.encode(shown.facts))["offset"] == 1
    assert len(shown.line) > 2


def test_what_cannot_be_decoded_is_kept_whole() -> None:
    record = Record("topic", 0, 1, 2, b"\xff", b"\xfe", [("ce_id", b"\xfd"), ("x", None)])
    shown = show(View.EVENTS, record)
    assert ("undecodable", "red") in shown.line
    assert shown.facts["undecodable"] == "the header `ce_id` is not UTF-8"
    assert (shown.facts["key_base64"], shown.facts["value_base64"]) == ("/w==", "/g==")
    assert shown.facts["headers"] == [["ce_id", "/Q=="], ["x", None]]


@pytest.mark.parametrize(
    ("view", "topic"),
    [
        (View.EVENTS, "n-b"),
        (View.TRIGGERS, "n-b-s-trigger"),
        (View.ACTIONS, "n-b-s-action"),
        (View.INVOCATIONS, "n-b-s-invocation"),
        (View.DLQ, "n-b-s-dlq"),
    ],
)
def test_every_view_has_its_topic(view: View, topic: str) -> None:
    bus = BusName("n", "b")
    assert topic_of(view, bus, SensorName(bus, "s")) == topic
