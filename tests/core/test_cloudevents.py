"""The codec: strict when reading, exact when writing, nothing invented in between."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.cloudevents import from_json, from_json_batch, from_kafka, to_json, to_kafka
from eventbus.errors import InvalidEvent
from eventbus.events import Attribute, Event
from eventbus.ports import Headers

REQUIRED: dict[str, Attribute] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
HEADERS = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/s"), ("ce_type", b"t")]

text = st.text(min_size=1, max_size=30)
names = st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True).filter(
    lambda name: name not in {"data", "specversion", "id", "source", "type", "datacontenttype", "datacontentencoding"}
)
content_types = st.sampled_from(
    ["application/json", "text/plain", "application/xml", "application/cesomething+json; charset=utf-8", "image/png"]
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    attributes: dict[str, Attribute] = {
        "specversion": draw(st.sampled_from(["1.0", "0.3"])),
        "id": draw(text),
        "source": draw(text),
        "type": draw(text),
    }
    attributes |= draw(st.dictionaries(names, text, max_size=4))
    if draw(st.booleans()):
        attributes["datacontenttype"] = draw(content_types)
    if draw(st.integers(0, 9)) == 0:
        attributes["datacontentencoding"] = "base64"
    json = st.recursive(st.none() | st.integers() | st.text(max_size=10), lambda inner: st.lists(inner, max_size=3))
    data = st.none() | st.binary(max_size=40) | json.map(msgspec.json.encode)
    return Event(attributes, draw(data))


@given(events())
def test_an_event_survives_kafka_unchanged(event: Event) -> None:
    headers, value = to_kafka(event)
    assert from_kafka(headers, value) == event


@given(events())
def test_an_event_survives_json_unchanged(event: Event) -> None:
    assert from_json(to_json(event)) == event


@given(st.lists(events(), max_size=4))
def test_a_batch_survives_unchanged(batch: list[Event]) -> None:
    assert from_json_batch(b"[" + b",".join(map(to_json, batch)) + b"]") == batch


@given(st.dictionaries(names, st.integers(-(2**31), 2**31 - 1) | st.booleans() | text, max_size=5))
def test_typed_attributes_keep_their_type_in_json(extensions: dict[str, Attribute]) -> None:
    decoded = from_json(to_json(Event(REQUIRED | extensions)))
    assert [(name, type(value), value) for name, value in decoded.attributes.items()] == [
        (name, type(value), value) for name, value in (REQUIRED | extensions).items()
    ]


def test_no_data_stays_no_data() -> None:
    assert from_kafka(HEADERS, None).data is None
    assert to_kafka(from_kafka(HEADERS, None))[1] is None
    assert b"data" not in to_json(from_kafka(HEADERS, None))
    assert from_kafka(HEADERS, b"").data == b""


def test_null_as_json_data_is_not_the_same_as_no_data() -> None:
    document = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":null}'
    assert from_json(document).data == b"null"
    assert to_json(from_json(document)) == document


def test_the_bytes_of_json_data_are_kept() -> None:
    document = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data": {"a" : 1.0, "a":1e2, "b":"\\u00e9"} }'
    assert from_json(document).data == b'{"a" : 1.0, "a":1e2, "b":"\\u00e9"}'


def test_nothing_is_invented_and_nothing_upgraded() -> None:
    document = b'{"specversion":"0.3","id":"1","source":"/s","type":"t","schemaurl":"u"}'
    assert from_json(document).attributes == {**REQUIRED, "specversion": "0.3", "schemaurl": "u"}


def test_a_null_attribute_is_an_absent_one() -> None:
    assert from_json(b'{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":null}').attributes == REQUIRED


@pytest.mark.parametrize(
    "content_type",
    [b"application/cloudevents+json", b"application/cloudevents+json; charset=utf-8", b"Application/CloudEvents+JSON"],
)
def test_structured_mode_goes_by_the_content_type(content_type: bytes) -> None:
    document = b'{"specversion":"1.0","id":"2","source":"/s","type":"t","data":{"m":"Hello"}}'
    event = from_kafka([("content-type", content_type), ("ce_id", b"ignored")], document)
    assert (event.id, event.data) == ("2", b'{"m":"Hello"}')


@pytest.mark.parametrize(
    ("headers", "value", "message"),
    [
        ([], b"{}", "the required attribute `specversion` is missing"),
        (HEADERS[:1] + HEADERS[2:], None, "the required attribute `id` is missing"),
        (HEADERS[:2] + HEADERS[3:], None, "the required attribute `source` is missing"),
        (HEADERS[:3], None, "the required attribute `type` is missing"),
        ([*HEADERS[1:], ("ce_specversion", b"19.0")], None, "specversion `19.0` is not known; 1.0 and 0.3 are"),
        ([*HEADERS[:1], ("ce_id", b""), *HEADERS[2:]], None, "the attribute `id` must be a non-empty string"),
        ([*HEADERS, ("ce_subject", b"\xff\xfe")], None, "the header `ce_subject` is not UTF-8"),
        ([*HEADERS, ("ce_subject", None)], None, "the header `ce_subject` has no value"),
        (
            [*HEADERS, ("ce_My-Name", b"x")],
            None,
            "the attribute name `My-Name` is not allowed: use lower-case letters and digits only",
        ),
        ([*HEADERS, ("ce_data", b"x")], None, "`data` is not an attribute name"),
        (
            [("content-type", b"application/cloudevents+avro")],
            b"",
            "the event format `application/cloudevents+avro` is not supported; use application/cloudevents+json",
        ),
        (
            [("content-type", b"application/cloudevents-batch+json")],
            b"[]",
            "a batch of CloudEvents is not allowed in one Kafka record",
        ),
        ([("content-type", b"application/cloudevents+json")], None, "a structured CloudEvent without a body"),
    ],
)
def test_an_invalid_record_is_refused_with_the_rule_it_breaks(headers: Headers, value: bytes, message: str) -> None:
    with pytest.raises(InvalidEvent) as error:
        from_kafka(headers, value)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"[]", "not a JSON object: Expected `object`, got `array`"),
        (b'{"id":', "not a JSON object: Input data was truncated"),
        (b"\xff", "not a JSON object: JSON is malformed: invalid character (byte 0)"),
        (b'{"specversion":"1.0","id":1,"source":"/s","type":"t"}', "the attribute `id` must be a non-empty string"),
        (
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","x":{}}',
            "the attribute `x` must be a string, an integer or a boolean",
        ),
        (
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","x":2147483648}',
            "the attribute `x` is outside the range of a CloudEvents integer",
        ),
        (
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1,"data_base64":"MQ=="}',
            "`data` and `data_base64` exclude each other",
        ),
        (
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","x":"\xff"}',
            "the attribute `x` is not UTF-8",
        ),
        (
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data":"\xff"}',
            "`data` is not a valid JSON string",
        ),
        (
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"\xff"}',
            "`data_base64` is not base64",
        ),
        (
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"%"}',
            "`data_base64` is not base64",
        ),
    ],
)
def test_an_invalid_document_is_refused_with_the_rule_it_breaks(document: bytes, message: str) -> None:
    with pytest.raises(InvalidEvent) as error:
        from_json(document)
    assert str(error.value) == message


@given(st.binary(max_size=200))
def test_no_bytes_whatever_crash_the_decoder(garbage: bytes) -> None:
    for document in (garbage, b'{"specversion":"1.0","id":"1","source":"/s","type":"t","x":"' + garbage + b'"}'):
        with suppress(InvalidEvent):
            from_kafka([("content-type", b"application/cloudevents+json")], document)


def test_data_nested_without_end_is_refused_or_kept_as_bytes_but_does_not_crash() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    event = Event(REQUIRED, deep)
    assert from_json(to_json(event)).data == deep
    with pytest.raises(InvalidEvent):
        event.json()
    with pytest.raises(InvalidEvent):
        from_json(b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":' + deep + b"}")


@pytest.mark.parametrize(
    ("attributes", "key"),
    [
        ({"source": "shop", "subject": "order"}, None),
        ({"source": "shop", "subject": "order", "partitionkey": "7"}, b"7"),
        ({"source": "https://shop.example/orders", "subject": "order-7"}, b"order-7"),
        ({"source": "/orders", "subject": "order-7", "partitionkey": "k"}, b"k"),
        ({"source": "/orders"}, None),
    ],
)
def test_the_partition_key_is_the_extension_or_a_subject_the_sender_chose(
    attributes: dict[str, Attribute], key: bytes | None
) -> None:
    assert Event({**REQUIRED, **attributes}).key == key
