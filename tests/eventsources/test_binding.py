"""The rules of CloudEvents' HTTP binding, and of Knative's receivers, one by one, over real HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from eventbus import Bus, Event
from tests.eventsources.serving import Shop, metric, shop

REQUIRED = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/eu", "ce-type": "paid"}
DOCUMENT = {"specversion": "1.0", "id": "7", "source": "/eu", "type": "paid"}
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"


class Visit:
    """To the one receiver of all these tests; what others have left there is not seen."""

    def __init__(self, receiver: Shop) -> None:
        self.send = receiver.send
        self.port = receiver.runner.ports[0]
        self._receiver = receiver
        self._before = len(receiver.events())
        self._refusals: dict[int, float] = {status: self._counted(status) for status in (400, 415)}

    def events(self) -> list[Event]:
        return self._receiver.events()[self._before :]

    def refusals(self, status: int) -> float:
        return self._counted(status) - self._refusals[status]

    def _counted(self, status: int) -> float:
        name = "eventbus_source_requests_refused_total"
        return metric(self._receiver.runner, name, eventsource="shop", event="orders", status=str(status))


@pytest.fixture(scope="module")
def receiver() -> Iterator[Shop]:
    """Leaves the context of events alone."""
    with Bus.memory() as bus:
        bus.ensure(1)
        with shop(bus, keepContext=True) as made:
            yield made


@pytest.fixture
def orders(receiver: Shop) -> Visit:
    return Visit(receiver)


def taken(orders: Visit, body: bytes | str, headers: Mapping[str, str]) -> Event:
    """The event that a request becomes."""
    answer = orders.send(body, **headers)
    assert answer.status == 202, answer.data
    [event] = orders.events()
    return event


def refused(orders: Visit, body: bytes | str, headers: Mapping[str, str], status: int, reason: str) -> None:
    """With one line that says why, and counted."""
    answer = orders.send(body, **headers)
    assert (answer.status, answer.data.decode().count("\n")) == (status, 1)
    assert reason in answer.data.decode()
    assert orders.events() == []
    assert orders.refusals(status) == 1


# --- which mode -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", [STRUCTURED, "Application/CloudEvents+JSON", f"{STRUCTURED} ; charset=UTF-8"])
def test_the_content_type_makes_it_structured_whatever_the_headers_say(orders: Visit, content_type: str) -> None:
    headers = REQUIRED | {"ce-id": "of the header", "ce-region": "north", "Content-Type": content_type}
    event = taken(orders, json.dumps(DOCUMENT | {"data": [1]}), headers)
    assert event.attributes == DOCUMENT
    assert event.data == b"[1]"


@pytest.mark.parametrize("content_type", [BATCH, "Application/CloudEvents-Batch+JSON", f"{BATCH}; charset=UTF-8"])
def test_a_batch_is_not_taken_for_one_structured_event(orders: Visit, content_type: str) -> None:
    event = taken(orders, json.dumps([DOCUMENT]), REQUIRED | {"ce-id": "8", "Content-Type": content_type})
    assert event.attributes == DOCUMENT


@pytest.mark.parametrize("content_type", ["application/json", "application/x-cloudevents", "text/cloudevents+json"])
def test_any_other_content_type_makes_it_binary(orders: Visit, content_type: str) -> None:
    event = taken(orders, json.dumps(DOCUMENT | {"id": "of the body"}), REQUIRED | {"Content-Type": content_type})
    assert (event.id, event.attributes["datacontenttype"]) == ("7", content_type)


@pytest.mark.parametrize(
    ("content_type", "reason"),
    [
        ("application/cloudevents", "the event format `application/cloudevents` is not supported"),
        ("application/cloudevents+avro", "use application/cloudevents+json"),
        ("application/cloudevents+protobuf", "use application/cloudevents+json"),
        ("application/cloudevents-batch", "use application/cloudevents-batch+json"),
        ("application/cloudevents-batch+avro", "use application/cloudevents-batch+json"),
        (f"{STRUCTURED}; charset=utf-16", "the charset `utf-16` is not supported; use utf-8"),
        (f'{BATCH}; charset="ISO-8859-1"', "the charset `ISO-8859-1` is not supported; use utf-8"),
    ],
)
def test_a_format_that_is_not_known_is_refused(orders: Visit, content_type: str, reason: str) -> None:
    refused(orders, "{}", REQUIRED | {"Content-Type": content_type}, 415, reason)


# --- binary -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b'{ "a":1.10,\n "a": 2}'),
        ("application/json; charset=utf-8", b"{}"),
        ("application/vnd.apache.thrift.binary", b"\x80\x01\x00\x01\x00\xff"),
        ("application/xml", b"<?xml version='1.0'?><a/>"),
        ("text/plain", "ü".encode("latin-1")),
    ],
)
def test_data_is_kept_byte_for_byte_with_its_type(orders: Visit, content_type: str, body: bytes) -> None:
    event = taken(orders, body, REQUIRED | {"Content-Type": content_type})
    assert (event.data, event.attributes["datacontenttype"]) == (body, content_type)


def test_the_content_type_has_the_say_even_where_there_is_none(orders: Visit) -> None:
    """`ce-datacontenttype` must not be there; where it is, it is not believed."""
    event = taken(orders, b"x", REQUIRED | {"ce-datacontenttype": "text/plain"})
    assert event.attributes == DOCUMENT


def test_no_body_is_no_data(orders: Visit) -> None:
    assert taken(orders, b"", REQUIRED).data is None


def test_header_names_have_no_case(orders: Visit) -> None:
    headers = {name.upper(): value for name, value in REQUIRED.items()} | {"Ce-ReGion": "North"}
    assert taken(orders, b"", headers).attributes == DOCUMENT | {"region": "North"}


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ("Euro%20%e2%82%ac", "Euro €"),
        ("%4E%6f%72%74%68", "North"),
        ("%2541", "%41"),
        ("%22x%22", '"x"'),
        ("a%5C%22b", 'a\\"b'),
        ('"a b"', "a b"),
        ('"a \\"b\\" \\\\ c"', 'a "b" \\ c'),
        ('"%E2%82%AC \\%41"', "€ A"),
        ('""', ""),
        ('"never closed', '"never closed'),
        ('a "b" c', 'a "b" c'),
        ("100%", "100%"),
        ("%zz%4", "%zz%4"),
        ("a+b", "a+b"),
        ("\tx ", "x"),
    ],
)
def test_values_are_unquoted_and_then_decoded_once(orders: Visit, header: str, value: str) -> None:
    assert taken(orders, b"", REQUIRED | {"ce-region": header}).attributes["region"] == value


@pytest.mark.parametrize(
    "header", ["%C0%A0", "%ff", "a%80b", "%E2%82", "%ED%A0%80", "%F5%80%80%80", '"%C0%A0"', "\u00fc"]
)
def test_what_is_not_utf_8_is_refused(orders: Visit, header: str) -> None:
    reason = "the header `ce-region` is not UTF-8 when it is decoded"
    refused(orders, b"", REQUIRED | {"ce-region": header}, 400, reason)


@pytest.mark.parametrize("header", ["a%00b", "a%0D%0Ab", "%7F", "%C2%85"])
def test_control_characters_cannot_be_smuggled_in(orders: Visit, header: str) -> None:
    reason = "the attribute `region` has control characters, which CloudEvents does not allow"
    refused(orders, b"", REQUIRED | {"ce-region": header}, 400, reason)


def test_nor_by_a_document(orders: Visit) -> None:
    body = json.dumps(DOCUMENT | {"region": "a\r\nb"})
    refused(orders, body, {"Content-Type": STRUCTURED}, 400, "the attribute `region` has control characters")


def test_a_header_that_is_there_twice_is_refused(orders: Visit) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in [*REQUIRED.items(), ("ce-id", "8")])
    with (
        socket.create_connection(("127.0.0.1", orders.port), timeout=10) as wire,
        wire.makefile("rb") as all_of_it,
    ):
        wire.sendall(
            f"POST /orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n{head}\r\n".encode()
        )
        answer = all_of_it.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the header `ce-id` is there twice" in answer
    assert orders.events() == []


@pytest.mark.parametrize("missing", REQUIRED)
def test_what_is_required_must_be_there(orders: Visit, missing: str) -> None:
    headers = {name: value for name, value in REQUIRED.items() if name != missing}
    refused(orders, b"", headers, 400, f"the required attribute `{missing.removeprefix('ce-')}` is missing")


@pytest.mark.parametrize("name", ["sub.region", "sub-region", "data"])
def test_names_that_no_attribute_may_have(orders: Visit, name: str) -> None:
    refused(orders, b"", REQUIRED | {f"ce-{name}": "x"}, 400, f"`{name}` is not a")


# --- structured and batched -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", DOCUMENT)
def test_what_is_required_must_be_in_the_document(orders: Visit, missing: str) -> None:
    document = {name: value for name, value in DOCUMENT.items() if name != missing}
    for body, content_type in ((document, STRUCTURED), ([document], BATCH)):
        answer = orders.send(json.dumps(body), Content_Type=content_type)
        assert (answer.status, answer.data.decode()) == (400, f"the required attribute `{missing}` is missing\n")
    assert orders.events() == []


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'"x"', b"{", json.dumps(DOCUMENT).encode("utf-16")])
def test_what_is_no_document_is_refused(orders: Visit, body: bytes) -> None:
    refused(orders, body, {"Content-Type": STRUCTURED}, 400, "not a JSON object")


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"[{}", b"[[]]"])
def test_what_is_no_batch_is_refused(orders: Visit, body: bytes) -> None:
    refused(orders, body, {"Content-Type": BATCH}, 400, "not a JSON ")


def test_an_empty_batch_is_no_event(orders: Visit) -> None:
    assert orders.send("[]", Content_Type=BATCH).status == 202
    assert orders.events() == []


def test_the_events_of_a_batch_may_differ_but_for_their_version(orders: Visit) -> None:
    many = [DOCUMENT, DOCUMENT | {"id": "8", "datacontenttype": "text/plain", "data": "x"}]
    assert orders.send(json.dumps(many), Content_Type=BATCH).status == 202
    assert [event.id for event in orders.events()] == ["7", "8"]
    many[1] |= {"specversion": "0.3"}
    answer = orders.send(json.dumps(many), Content_Type=BATCH)
    assert answer.status == 400
    assert answer.data == b"the events of a batch must all have the same `specversion`\n"
    assert len(orders.events()) == 2


def test_a_repeat_is_recognisable_in_whatever_mode_it_comes(orders: Visit) -> None:
    statuses = [
        orders.send(b"", **REQUIRED).status,
        orders.send(json.dumps(DOCUMENT), Content_Type=STRUCTURED).status,
        orders.send(json.dumps([DOCUMENT, DOCUMENT]), Content_Type=BATCH).status,
    ]
    assert statuses == [202] * 3
    assert [(event.source, event.id) for event in orders.events()] == [("/eu", "7")] * 4


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("mode", ["binary", "structured", "batched"])
def test_the_version_is_kept(orders: Visit, version: str, mode: str) -> None:
    document: Any = DOCUMENT | {"specversion": version}
    event = {
        "binary": lambda: taken(orders, b"", REQUIRED | {"ce-specversion": version}),
        "structured": lambda: taken(orders, json.dumps(document), {"Content-Type": STRUCTURED}),
        "batched": lambda: taken(orders, json.dumps([document]), {"Content-Type": BATCH}),
    }[mode]()
    assert event.attributes == document


@pytest.mark.parametrize("version", ["19.0", "9000.1", "1", "1.0.2", "2.0"])
def test_a_version_that_is_not_known_is_refused(orders: Visit, version: str) -> None:
    reason = f"specversion `{version}` is not known; 1.0 and 0.3 are"
    refused(orders, b"", REQUIRED | {"ce-specversion": version}, 400, reason)


# --- methods and sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD"])
def test_other_methods_are_refused_and_told_which(orders: Visit, method: str) -> None:
    answer = orders.send(b"" if method in ("GET", "HEAD") else b"{}", method=method, **REQUIRED)
    assert (answer.status, answer.headers["Allow"]) == (405, "OPTIONS, POST")
    assert orders.events() == []


def test_whoever_asks_is_told_that_events_are_wanted(orders: Visit) -> None:
    plain = orders.send(b"", method="OPTIONS")
    assert (plain.status, plain.headers["Allow"], plain.data) == (200, "OPTIONS, POST", b"")
    assert "WebHook-Allowed-Origin" not in plain.headers
    asked = {"WebHook-Request-Origin": "eu.example", "WebHook-Request-Rate": "120"}
    answer = orders.send(b"", method="OPTIONS", **asked)
    assert (answer.headers["WebHook-Allowed-Origin"], answer.headers["WebHook-Allowed-Rate"]) == ("eu.example", "*")


def test_an_event_of_64_kib_is_taken_once(orders: Visit) -> None:
    """All receivers have to."""
    data = json.dumps("x" * (64 * 1024 - 200))
    assert taken(orders, json.dumps(DOCUMENT)[:-1] + f', "data": {data}}}', {"Content-Type": STRUCTURED}).data == (
        data.encode()
    )
