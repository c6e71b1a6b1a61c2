"""Events change requests and records where they may; headers carry no line breaks; secrets go where they belong."""

from __future__ import annotations

import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from eventbus import Bus, Event
from eventbus.clock import SystemClock
from eventbus.errors import ConfigError
from eventbus.names import Kind, SensorName
from eventbus.ports import Record
from sensors import Sensor
from sensors.actions.base import ActionContext, ActionError
from sensors.actions.http import HttpAction, HttpSpec
from sensors.actions.kafka import KafkaSpec, OtherClusterAction, OwnClusterAction
from sensors.inspection import read_range
from sensors.spec.loader import make_manifest
from tests.actions.conftest import CONTEXT, Certificate, HttpServer, Reply, make_call

CANARY = "canary-4711-geheim"


def _parameter(dest: str, **source: Any) -> dict[str, Any]:
    return {"src": {"dependencyName": "paid", "dataKey": "x", **source}, "dest": dest}


def _call(x: Any) -> Any:
    return make_call(events={"paid": Event.new("shop", "paid", {"x": x, "total": 12}, id="e-1")})


def _http(server: HttpServer, **spec: Any) -> HttpAction:
    return HttpAction(HttpSpec.model_validate({"url": server.url, **spec}), CONTEXT)


def _refused(action: HttpAction, x: Any) -> str:
    with pytest.raises(ActionError) as caught:
        action.invoke(_call(x))
    assert (caught.value.retriable, caught.value.sent) == (False, False)
    action.close()
    return str(caught.value)


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("EVENTBUS_CONFIG_DIR", str(tmp_path))
    (tmp_path / "login").mkdir()
    (tmp_path / "login" / "user").write_text("ada")
    (tmp_path / "login" / "password").write_text(f"{CANARY}\n")
    return tmp_path


LOGIN = {"username": {"name": "login", "key": "user"}, "password": {"name": "login", "key": "password"}}
SECURE = [{"name": "X-Token", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}]


# --- http -----------------------------------------------------------------------------------------------------------


def test_parameters_change_a_request_and_only_that_one(http_server: HttpServer) -> None:
    action = _http(
        http_server,
        headers={"X-Team": "shop"},
        payload=[{"src": {"dependencyName": "paid", "value": "old"}, "dest": "v"}],
        parameters=[
            {**_parameter("url"), "operation": "append"},
            _parameter("method", dataKey="zip", value="PUT"),
            _parameter("headers.X-Team"),
            _parameter("payload.0.src.value", dataTemplate="{{ .Input.x | upper }}"),
        ],
    )
    for x in ("/a", "/b"):
        action.invoke(_call(x))
    action.close()
    seen = [(each.method, each.path, each.headers["X-Team"], each.body) for each in http_server.requests]
    assert seen == [("PUT", "/hook/a", "/a", b'{"v":"/A"}'), ("PUT", "/hook/b", "/b", b'{"v":"/B"}')]


def test_a_triggers_parameters_come_before_those_of_its_action(http_server: HttpServer) -> None:
    manifest = make_manifest(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Sensor",
            "metadata": {"name": "s"},
            "spec": {
                "dependencies": [{"name": "paid", "eventSourceName": "shop", "eventName": "paid"}],
                "triggers": [
                    {
                        "template": {
                            "name": "t",
                            "http": {
                                "url": http_server.url,
                                "parameters": [{**_parameter("url", value="2"), "operation": "append"}],
                            },
                        },
                        "parameters": [
                            {**_parameter("http.url", value="1"), "operation": "append"},
                            _parameter("name"),
                        ],
                    }
                ],
            },
        }
    )
    assert [problem.message for problem in manifest.warnings] == [
        "this parameter changes nothing: records and metrics need the trigger's own name"
    ]
    kind, spec = manifest.spec.triggers[0].action
    assert kind == "http"
    action = HttpAction(HttpSpec.model_validate(spec.model_dump()), CONTEXT)
    action.invoke(make_call(events={"paid": Event.new("shop", "paid", {}, id="1")}))
    action.close()
    assert [request.path for request in http_server.requests] == ["/hook12"]


@pytest.mark.parametrize(
    ("dest", "x", "message"),
    [
        ("url", "http://h/\r\nX-Evil: 1", "`url` must be a complete http:// or https:// address"),
        ("url", "file:///etc/passwd", "`url` must be a complete http:// or https:// address"),
        ("url", "http://user:pw@h/", "`url` must not contain a user name or password"),
        ("method", "CONNECT", "`method` must be `GET`, `POST`, `PUT`, `PATCH` or `DELETE`, not `CONNECT`"),
        ("host", "evil\r\nX-Evil: 1", "`host` must be a host name, with or without a port"),
        ("headers.X-A", "a\r\nX-Evil: 1", "the header `X-A` contains a line break"),
        ("headers.X-A", "\x00", "the header `X-A` contains a line break"),
        ("headers.X-A", "ä", "the header `X-A` contains a line break"),
    ],
)
def test_what_no_manifest_could_say_no_event_can_say(http_server: HttpServer, dest: str, x: str, message: str) -> None:
    refusal = _refused(_http(http_server, parameters=[_parameter(dest)]), x)
    assert refusal.startswith(f"the parameters cannot be applied: {message}")
    assert http_server.requests == []


@pytest.mark.parametrize(
    "dest",
    ["basicAuth.password.name", "secureHeaders.0.name", "tls.insecureSkipVerify", "payload",
     "payload.0.src.dataTemplate", "payload.0.src.dataKey", "dynamicHeaders.0.dest", "parameters.0.dest",
     "headers", "url.x"],
)  # fmt: skip
def test_events_choose_no_secrets_and_no_templates(dest: str) -> None:
    with pytest.raises(ValidationError, match="`dest` cannot be"):
        HttpSpec.model_validate({"url": "http://h", "parameters": [_parameter(dest)]})


def test_a_parameter_needs_a_dest() -> None:
    with pytest.raises(ValidationError, match="must have a `dest` in every entry"):
        HttpSpec.model_validate({"url": "http://h", "parameters": [_parameter("")]})


def test_dynamic_headers_come_from_events(http_server: HttpServer) -> None:
    action = _http(
        http_server,
        dynamicHeaders=[
            _parameter("X-Order"),
            _parameter("content-type", value="text/x", dataKey="zip"),
            {"src": {"dependencyName": "absent"}, "dest": "X-Absent"},
        ],
    )
    action.invoke(_call(7))
    action.close()
    headers = {name.lower(): value for name, value in http_server.requests[0].headers.items()}
    assert (headers["x-order"], headers["content-type"], "x-absent" in headers) == ("7", "text/x", False)


@pytest.mark.parametrize("x", ["a\r\nX-Evil: 1", "a\nb", "\x7f", "é"])
def test_a_dynamic_header_cannot_become_two(http_server: HttpServer, x: str) -> None:
    refusal = _refused(_http(http_server, dynamicHeaders=[_parameter("X-Order")]), x)
    assert refusal == "the header `X-Order` contains a line break or another character that is not allowed"
    assert http_server.requests == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"dynamicHeaders": [_parameter("X Y")]}, "cannot be the name of a header"),
        ({"dynamicHeaders": [_parameter("Idempotency-Key")]}, "is set for every call"),
        ({"dynamicHeaders": [_parameter("A"), _parameter("a")]}, "the header `a` is set twice"),
        ({"headers": {"A": "1"}, "dynamicHeaders": [_parameter("a")]}, "the header `a` is set twice"),
        ({"headers": {"x-token": "1"}, "secureHeaders": SECURE}, "the header `X-Token` is set twice"),
        ({"headers": {"authorization": "1"}, "basicAuth": LOGIN}, "the header `authorization` is set twice"),
        ({"headers": {"Host": "h"}, "host": "h"}, "the header `Host` is set twice"),
        ({"secureHeaders": [{"name": "A", "valueFrom": {}}]}, "either a `secretKeyRef` or a `configMapKeyRef`"),
        ({"host": "a b"}, "must be a host name"),
        ({"tls": {"caCertFile": "a", "caCertSecret": {"name": "a", "key": "b"}}}, "say the same"),
        ({"tls": {"clientKeySecret": {"name": "a", "key": "b"}}}, "`clientKeySecret` needs `clientCertSecret`"),
    ],
)
def test_settings_that_cannot_work_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HttpSpec.model_validate({"url": "https://h", **spec})


def test_a_name_a_password_and_a_host_are_sent(http_server: HttpServer, mounts: Path) -> None:
    action = _http(http_server, basicAuth=LOGIN, secureHeaders=SECURE, host="shop.example:8080")
    action.invoke(make_call())
    (mounts / "login" / "password").write_text("new")
    action.invoke(make_call())
    action.close()
    seen = [
        {name: each.headers[name] for name in ("Authorization", "X-Token", "Host")} for each in http_server.requests
    ]
    assert seen[0]["Host"] == "shop.example:8080"
    assert [each["X-Token"] for each in seen] == [CANARY, "new"]
    assert [each["Authorization"] for each in seen] == [
        "Basic YWRhOmNhbmFyeS00NzExLWdlaGVpbQ==",
        "Basic YWRhOm5ldw==",
    ]


def test_a_secret_that_is_not_there_is_told_at_the_start_and_may_come_back_later(
    http_server: HttpServer, mounts: Path
) -> None:
    action = _http(http_server, basicAuth=LOGIN)
    (mounts / "login" / "password").unlink()
    with pytest.raises(ActionError, match="of the secret `login` is not there") as caught:
        action.invoke(make_call())
    assert (caught.value.retriable, caught.value.sent) == (True, False)
    action.close()
    with pytest.raises(ConfigError, match="EVENTBUS_SECRET_LOGIN_PASSWORD"):
        _http(http_server, basicAuth=LOGIN)


def test_a_host_that_an_event_chose_gets_no_secrets(http_server: HttpServer, mounts: Path) -> None:
    action = HttpAction(
        HttpSpec.model_validate({"url": "http://safe.example/", "basicAuth": LOGIN, "parameters": [_parameter("url")]}),
        CONTEXT,
    )
    refusal = _refused(action, http_server.url)
    assert refusal.endswith("which must not get the secrets of the trigger")
    assert http_server.requests == []


@pytest.mark.parametrize("field", ["host", "headers", "dynamicHeaders"])
def test_another_host_at_the_same_address_gets_no_secrets(http_server: HttpServer, mounts: Path, field: str) -> None:
    """Found in a review: a server may have many names, and not all of them are ours."""
    chosen = {"src": {"dependencyName": "paid", "dataKey": "host"}, "dest": "host" if field == "host" else "Host"}
    fields: dict[str, Any] = {"dynamicHeaders": [chosen]}
    if field != "dynamicHeaders":
        dest = "host" if field == "host" else "headers.Host"
        fields = {"host": "ours.example"} if field == "host" else {"headers": {"Host": "ours.example"}}
        fields["parameters"] = [{**chosen, "dest": dest}]
    action = _http(http_server, basicAuth=LOGIN, **fields)
    with pytest.raises(ActionError, match="another `Host`, which must not get the secrets") as caught:
        action.invoke(make_call(events={"paid": Event.new("shop", "paid", {"host": "evil.example"})}))
    assert (caught.value.retriable, caught.value.sent) == (False, False)
    assert http_server.requests == []


def test_a_server_that_repeats_our_secrets_is_not_quoted(http_server: HttpServer, mounts: Path) -> None:
    password = (mounts / "login" / "password").read_text().strip()
    header = b64encode(f"ada:{password}".encode()).decode()
    http_server.reply = Reply(400, body=f"you sent Basic {header} ({header}, {password})".encode())
    action = _http(http_server, basicAuth=LOGIN)
    with pytest.raises(ActionError) as caught:
        action.invoke(make_call())
    assert password not in str(caught.value)
    assert header not in str(caught.value)


def test_certificates_come_from_secrets_too(https_server: HttpServer, certificate: Certificate, mounts: Path) -> None:
    (mounts / "tls").mkdir()
    (mounts / "tls" / "ca").write_bytes(certificate.cert.read_bytes())
    (mounts / "tls" / "key").write_bytes(certificate.key.read_bytes())
    selectors = {"caCertSecret": "ca", "clientCertSecret": "ca", "clientKeySecret": "key"}
    action = _http(https_server, tls={field: {"name": "tls", "key": key} for field, key in selectors.items()})
    assert action.invoke(make_call()) == "200"
    (mounts / "tls" / "ca").write_text("nonsense")
    with pytest.raises(ActionError, match="the TLS secret `tls` cannot be used: it is not a usable PEM file"):
        action.invoke(make_call())
    action.close()


# --- kafka ----------------------------------------------------------------------------------------------------------


def _kafka(**spec: Any) -> OwnClusterAction:
    context = ActionContext(
        sensor="s", namespace="shop", bootstrap_servers="", partitions={"out": 4, "in": 2, "shop-b": 1}
    )
    return OwnClusterAction(KafkaSpec.model_validate({"topic": "out", **spec}), context)


def test_parameters_change_a_record() -> None:
    action = _kafka(
        headers={"team": "old"},
        parameters=[
            _parameter("topic", value="out", dataKey="zip"),
            _parameter("partitioningKey"),
            _parameter("headers.team"),
        ],
    )
    (output,) = action.outputs(_call("k"))
    assert (output.topic, output.key, dict(output.headers)["team"]) == ("out", b"k", b"k")
    (output,) = _kafka(parameters=[_parameter("topic")]).outputs(_call("in"))
    assert (output.topic, output.partition < 2) == ("in", True)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ("nowhere", "the topic `nowhere` does not exist"),
        ("a b", "the parameters cannot be applied: `topic` must consist of letters"),
        ("shop-b", "the parameters lead to the topic `shop-b`, which is one of the bus's own"),
    ],
)
def test_an_event_cannot_choose_just_any_topic(x: str, message: str) -> None:
    with pytest.raises(ActionError) as caught:
        _kafka(parameters=[_parameter("topic")]).outputs(_call(x))
    assert str(caught.value).startswith(message)
    assert (caught.value.retriable, caught.value.sent) == (False, False)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"parameters": [_parameter("url")]}, "`dest` cannot be `url`"),
        ({"tls": {}}, "`tls` needs a `url`"),
        (
            {"sasl": {"userSecret": {"name": "a", "key": "b"}, "passwordSecret": {"name": "a", "key": "b"}}},
            "`sasl` needs",
        ),
        ({"secureHeaders": [{**SECURE[0], "name": "ce_id"}]}, "the header `ce_id` is not allowed"),
    ],
)
def test_settings_of_a_record_that_cannot_work_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        KafkaSpec.model_validate({"topic": "out", **spec})


def test_secure_headers_are_written_with_a_record(mounts: Path) -> None:
    (output,) = _kafka(secureHeaders=SECURE).outputs(make_call())
    assert dict(output.headers)["X-Token"] == CANARY.encode()


def test_another_cluster_is_reached_as_the_manifest_says(mounts: Path) -> None:
    (mounts / "tls").mkdir()
    (mounts / "tls" / "ca").write_text("PEM")
    sasl = {"mechanism": "SCRAM-SHA-512", "userSecret": LOGIN["username"], "passwordSecret": LOGIN["password"]}
    spec = KafkaSpec.model_validate(
        {"topic": "t", "url": "h:1", "sasl": sasl, "tls": {"caCertSecret": {"name": "tls", "key": "ca"}}}
    )
    assert spec.connection(spec.credentials()) == {
        "bootstrap.servers": "h:1",
        "security.protocol": "sasl_ssl",
        "ssl.ca.pem": "PEM",
        "enable.ssl.certificate.verification": True,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": CANARY,
    }
    assert CANARY not in repr(spec) + repr(spec.credentials()) + spec.model_dump_json()


def test_a_client_with_a_password_can_be_made(mounts: Path) -> None:
    sasl = {"userSecret": LOGIN["username"], "passwordSecret": LOGIN["password"]}
    spec = KafkaSpec.model_validate({"topic": "t", "url": "localhost:1", "sasl": sasl})
    OtherClusterAction(spec, CONTEXT).close()


def test_a_certificate_that_no_client_can_use_is_an_error_of_the_manifest(mounts: Path) -> None:
    tls = {"caCertSecret": LOGIN["password"]}
    spec = KafkaSpec.model_validate({"topic": "t", "url": "localhost:1", "tls": tls})
    with pytest.raises(ConfigError) as caught:
        OtherClusterAction(spec, CONTEXT)
    assert CANARY not in str(caught.value)


# --- the canary -----------------------------------------------------------------------------------------------------


def _records(bus: Bus, topic: str) -> list[Record]:
    info = bus.cluster.describe([topic])[topic]
    reader = bus.cluster.reader()
    found = [
        record
        for partition in range(info.partitions if info else 0)
        for record in read_range(reader, topic, partition, start=0, end=None, clock=SystemClock())
    ]
    reader.close()
    return found


@pytest.mark.parametrize("password", [CANARY, f"{CANARY}\r\nX-Evil: 1"])
def test_a_secret_shows_up_nowhere(
    http_server: HttpServer,
    mounts: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    password: str,
) -> None:
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(mounts / "slots"))
    (mounts / "login" / "password").write_text(password)
    http_server.reply = Reply(400, body=b"no")
    sensor = Sensor.of(
        make_manifest(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Sensor",
                "metadata": {"name": "s"},
                "spec": {
                    "dependencies": [{"name": "paid", "eventSourceName": "shop", "eventName": "paid"}],
                    "triggers": [
                        {
                            "template": {
                                "name": "t",
                                "http": {"url": http_server.url, "secureHeaders": SECURE, "basicAuth": LOGIN},
                            }
                        }
                    ],
                },
            }
        )
    )
    caplog.set_level(logging.DEBUG)
    with Bus.memory() as bus, sensor.start(bus) as replica:
        replica.wait_ready()
        bus.publish(Event.new("shop", "paid", {"a": 1}))
        replica.settle()
        records = [each for kind in Kind for each in _records(bus, SensorName(bus.name, "s").topic(kind))]
    written = [part for each in records for part in (each.key, each.value, *(value for _, value in each.headers))]
    assert any(b"400" in (part or b"") or b"line break" in (part or b"") for part in written)
    assert not any(CANARY.encode() in (part or b"") for part in written)
    assert CANARY not in caplog.text
    assert CANARY not in repr(sensor.manifest) + sensor.manifest.model_dump_json() + sensor.manifest.digest()
