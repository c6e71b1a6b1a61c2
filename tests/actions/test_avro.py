"""`schemaRegistry` of the action `kafka`: Avro behind the number of its schema, from a registry over HTTP."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any, ClassVar

import pytest
from fastavro import schemaless_reader

from eventbus.kafka import KafkaCluster
from eventbus.ports import Record, TopicSpec
from sensors.actions.avro import AvroEncoder, SchemaRegistry
from sensors.actions.base import ActionError
from sensors.actions.kafka import KafkaSpec, OtherClusterAction
from sensors.spec.loader import load_text
from sensors.spec.problems import ManifestError
from tests.actions.conftest import CONTEXT, make_call
from tests.core.test_spec_joins import MANIFEST

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]}
PAYLOAD = [{"src": {"dependencyName": "paid", "dataKey": "total", "useRawData": True}, "dest": "total"}]


class Registry(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, bytes]]] = {
        "/schemas/ids/7": (200, json.dumps({"schema": json.dumps(SCHEMA)}).encode()),
        "/schemas/ids/8": (200, b"{}"),
        "/schemas/ids/9": (503, b""),
    }
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        status, body = self.answers.get(self.path, (404, b""))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    Registry.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def encoder(url: str, number: int, **fields: Any) -> AvroEncoder:
    return AvroEncoder(SchemaRegistry.model_validate({"url": url, "schemaId": number, **fields}))


def test_a_value_is_avro_behind_the_number_of_its_schema_which_is_fetched_once(registry: str) -> None:
    made = encoder(registry, 7)
    for total in (1.5, 2.5):
        written = made.encode(b'{"total": %f}' % total)
        assert struct.unpack(">bI", written[:5]) == (0, 7)
        assert schemaless_reader(BytesIO(written[5:]), SCHEMA, None) == {"total": total}
    made.close()
    assert Registry.asked == [("/schemas/ids/7", None)]


def test_who_we_are_is_told_to_the_registry(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_SECRET_R_U", "me")
    monkeypatch.setenv("EVENTBUS_SECRET_R_P", "secret")
    auth = {"username": {"name": "r", "key": "u"}, "password": {"name": "r", "key": "p"}}
    encoder(registry, 7, auth=auth).encode(b'{"total": 1.0}')
    assert Registry.asked == [("/schemas/ids/7", "Basic bWU6c2VjcmV0")]


@pytest.mark.parametrize(
    ("number", "value", "retriable", "told"),
    [
        (7, b'{"total": "much"}', False, "the payload does not fit the schema 7"),
        (7, b"[]", False, "the payload does not fit the schema 7"),
        (8, b"{}", False, "is no Avro schema"),
        (9, b"{}", True, "the schema registry answered 503"),
        (10, b"{}", False, "the schema registry answered 404"),
    ],
)
def test_what_cannot_be_written_is_never_sent(
    registry: str, number: int, value: bytes, retriable: bool, told: str
) -> None:
    with pytest.raises(ActionError, match=told) as caught:
        encoder(registry, number).encode(value)
    assert (caught.value.retriable, caught.value.sent) == (retriable, False)


def test_a_registry_that_is_down_may_come_back() -> None:
    with pytest.raises(ActionError, match="the schema registry: ") as caught:
        encoder("http://127.0.0.1:1", 7).encode(b"{}")
    assert (caught.value.retriable, caught.value.sent) == (True, False)


def test_it_is_for_another_cluster_than_the_bus() -> None:
    text = MANIFEST.replace("log: {}", "kafka: {topic: t, schemaRegistry: {url: http://r, schemaId: 1}}")
    with pytest.raises(ManifestError, match=r"s.yaml:12:27: `schemaRegistry` needs a `url`"):
        load_text(text, "s.yaml")


@pytest.mark.kafka
def test_a_record_in_a_topic(registry: str, kafka_bootstrap_servers: str, namespace: str) -> None:
    topic = f"{namespace}-avro"
    cluster = KafkaCluster(kafka_bootstrap_servers)
    cluster.create([TopicSpec(topic, 1, {})])
    fields = {"url": kafka_bootstrap_servers, "topic": topic, "payload": PAYLOAD}
    spec = KafkaSpec.model_validate({**fields, "schemaRegistry": {"url": registry, "schemaId": 7}})
    action = OtherClusterAction(spec, CONTEXT)
    action.invoke(make_call())
    action.close()
    reader = cluster.reader()
    reader.open(topic, 0, 0)
    records: list[Record] = []
    while not records:
        records = reader.read(1, 1.0)
    reader.close()
    assert dict(records[0].headers)["content-type"] == b"avro/binary"
    found = schemaless_reader(BytesIO((records[0].value or b"")[5:]), SCHEMA, None)
    assert isinstance(found, dict)
    assert set(found) == {"total"}
