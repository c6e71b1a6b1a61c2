"""The `custom` action against real gRPC servers that speak argo-events' protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import yaml
from pydantic import ValidationError

from eventbus.errors import ConfigError
from eventbus.events import Event
from sensors.actions import grpc_client, make_action
from sensors.actions.custom import CustomAction, CustomSpec
from sensors.actions.grpc_client import MESSAGES
from sensors.spec.loader import load_text
from tests.actions.conftest import CONTEXT, Certificate, failure_of, make_call, parameter, unused_port

CANARY = "canary-6f1d"
MakeSecret = Callable[..., dict[str, str]]


class TriggerService:
    """Answers as told, and remembers what it was asked: the method, the request, the metadata."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.calls: list[tuple[str, Any, dict[str, str]]] = []
        self.answers: dict[str, dict[str, Any]] = {
            "FetchResource": {"resource": b'{"kind": "Run"}'},
            "Execute": {"response": b"done"},
            "ApplyPolicy": {"success": True},
        }
        self.refusals: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.hangs: set[str] = set()
        self.released = threading.Event()
        methods = {name: self._handler(name) for name in self.answers}
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("triggers.Trigger", methods),))
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.address = f"localhost:{port}"
        self._server.start()

    def _handler(self, name: str) -> grpc.RpcMethodHandler[Any, Any]:
        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            self.calls.append((name, request, {str(key): str(value) for key, value in context.invocation_metadata()}))
            if name in self.hangs:
                self.released.wait(10)
            if name in self.refusals:
                context.abort(*self.refusals[name])
            return MESSAGES[f"{name}Response"](**self.answers[name])

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=MESSAGES[f"{name}Request"].FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    @property
    def asked(self) -> list[str]:
        return [name for name, _, _ in self.calls]

    def close(self) -> None:
        self.released.set()
        self._server.stop(None).wait()


@pytest.fixture
def start_service() -> Iterator[Callable[..., TriggerService]]:
    services: list[TriggerService] = []

    def start(credentials: grpc.ServerCredentials | None = None) -> TriggerService:
        services.append(TriggerService(credentials))
        return services[-1]

    yield start
    for service in services:
        service.close()


StartService = Callable[..., TriggerService]
MakeCustom = Callable[..., CustomAction]


@pytest.fixture
def service(start_service: StartService) -> TriggerService:
    return start_service()


@pytest.fixture
def custom() -> Iterator[MakeCustom]:
    """Makes actions and closes them."""
    made: list[CustomAction] = []

    def make(address: str, **fields: Any) -> CustomAction:
        made.append(CustomAction(CustomSpec.model_validate({"serverURL": address, **fields}), CONTEXT))
        return made[-1]

    yield make
    for action in made:
        action.close()


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_the_messages_have_argo_events_field_numbers() -> None:
    """As protoc would have it: a field is its number and type, a length, and the bytes."""
    messages: dict[str, Any] = MESSAGES
    assert messages["FetchResourceRequest"](resource=b"a").SerializeToString() == b"\x0a\x01a"
    assert messages["FetchResourceResponse"](resource=b"a").SerializeToString() == b"\x0a\x01a"
    assert messages["ExecuteRequest"](resource=b"a", payload=b"b").SerializeToString() == b"\x0a\x01a\x12\x01b"
    assert messages["ExecuteResponse"](response=b"a").SerializeToString() == b"\x0a\x01a"
    assert messages["ApplyPolicyRequest"](request=b"a").SerializeToString() == b"\x0a\x01a"
    assert messages["ApplyPolicyResponse"](success=True, message="a").SerializeToString() == b"\x08\x01\x12\x01a"


def test_a_resource_is_fetched_executed_and_judged(service: TriggerService) -> None:
    spec = CustomSpec.model_validate({"serverURL": service.address, "spec": {"url": "https://x/y.yaml", "a": "ü: 1"}})
    action = make_action("custom", spec, CONTEXT)
    assert isinstance(action, CustomAction)
    assert action.invoke(make_call()) == "OK"
    action.close()
    assert service.asked == ["FetchResource", "Execute", "ApplyPolicy"]
    fetch, execute, judge = (request for _, request, _ in service.calls)
    assert yaml.safe_load(fetch.resource) == {"url": "https://x/y.yaml", "a": "ü: 1"}
    assert (execute.resource, execute.payload) == (b'{"kind": "Run"}', b"")
    assert judge.request == b"done"
    assert {metadata["idempotency-key"] for _, _, metadata in service.calls} == {"action-1"}


def test_payload_and_parameters_are_applied(service: TriggerService, custom: MakeCustom) -> None:
    custom(
        service.address,
        payload=[parameter("total", useRawData=True)],
        parameters=[parameter("metadata.labels.total"), parameter("kind", value="x")],
    ).invoke(make_call())
    execute = service.calls[1][1]
    assert json.loads(execute.resource) == {"kind": "12", "metadata": {"labels": {"total": "12"}}}
    assert json.loads(execute.payload) == {"total": 12}


def test_a_triggers_parameters_change_what_is_asked_for(service: TriggerService) -> None:
    [manifest] = load_text(
        f"""
        apiVersion: argoproj.io/v1alpha1
        kind: Sensor
        metadata: {{name: custom-trigger}}
        spec:
          dependencies: [{{name: paid, eventSourceName: shop, eventName: paid}}]
          triggers:
            - template:
                name: t
                custom:
                  serverURL: {service.address}
                  spec: {{url: here}}
                  parameters:
                    - {{src: {{dependencyName: paid, dataKey: body.namespace}}, dest: metadata.namespace}}
              parameters:
                - {{src: {{dependencyName: paid, dataKey: body.url}}, dest: custom.spec.url}}
        """,
        "sensor.yaml",
    )
    action = make_action(*manifest.spec.triggers[0].action, CONTEXT)
    assert isinstance(action, CustomAction)
    event = Event.new("shop", "paid", {"body": {"url": "there", "namespace": "n"}})
    action.invoke(make_call(events={"paid": event}))
    action.close()
    assert yaml.safe_load(service.calls[0][1].resource) == {"url": "there"}
    assert json.loads(service.calls[1][1].resource) == {"kind": "Run", "metadata": {"namespace": "n"}}


def test_an_event_cannot_choose_the_server() -> None:
    assert not CustomSpec.can_patch("serverURL")


def test_calls_run_in_parallel(service: TriggerService, custom: MakeCustom) -> None:
    action = custom(service.address)
    with ThreadPoolExecutor(8) as workers:
        outcomes = list(workers.map(lambda number: action.invoke(make_call(id=f"a-{number}")), range(32)))
    assert outcomes == ["OK"] * 32


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "sent"), [("FetchResource", False), ("Execute", True), ("ApplyPolicy", True)])
@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (grpc.StatusCode.UNKNOWN, True),
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.INTERNAL, True),
        (grpc.StatusCode.INVALID_ARGUMENT, False),
        (grpc.StatusCode.PERMISSION_DENIED, False),
    ],
)
def test_the_server_says_no(
    service: TriggerService, custom: MakeCustom, *, method: str, sent: bool, code: grpc.StatusCode, retriable: bool
) -> None:
    service.refusals[method] = (code, "not\ntoday")
    error = failure_of(custom(service.address))
    assert str(error) == f"{method}: {code.name}: not today"
    assert (error.retriable, error.sent, error.status) == (retriable, sent, code.name)
    assert service.asked[-1] == method


def test_a_policy_that_is_not_met_is_a_failure(service: TriggerService, custom: MakeCustom) -> None:
    service.answers["ApplyPolicy"] = {"success": False, "message": "still pending"}
    error = failure_of(custom(service.address))
    assert str(error) == "the server's policy does not call this a success: still pending"
    assert (error.retriable, error.sent) == (True, True)


@pytest.mark.parametrize("resource", [b"kind: Run", b"[]", b""])
def test_a_resource_that_parameters_cannot_change_is_not_executed(
    service: TriggerService, custom: MakeCustom, resource: bytes
) -> None:
    service.answers["FetchResource"] = {"resource": resource}
    error = failure_of(custom(service.address, parameters=[parameter("a")]))
    assert str(error) == "the parameters cannot be applied: the server's resource is not a JSON object"
    assert (error.retriable, error.sent) == (False, False)
    assert service.asked == ["FetchResource"]


def test_a_value_that_is_not_there_is_final(service: TriggerService, custom: MakeCustom) -> None:
    error = failure_of(custom(service.address, parameters=[parameter("a", "x")]))
    assert "event `e-1` has no `x` in its data" in str(error)
    assert (error.retriable, error.sent) == (False, False)
    assert service.asked == ["FetchResource"]


def test_a_server_that_is_down_got_nothing(custom: MakeCustom) -> None:
    error = failure_of(custom(f"localhost:{unused_port()}"))
    assert str(error).startswith("FetchResource: UNAVAILABLE: ")
    assert (error.retriable, error.sent) == (True, False)


@pytest.mark.parametrize(("method", "sent"), [("FetchResource", False), ("Execute", True)])
def test_a_server_that_does_not_answer(
    service: TriggerService, custom: MakeCustom, monkeypatch: pytest.MonkeyPatch, method: str, sent: bool
) -> None:
    monkeypatch.setattr(grpc_client, "TIMEOUT_SECONDS", 0.5)
    service.hangs.add(method)
    error = failure_of(custom(service.address))
    assert str(error) == f"{method}: DEADLINE_EXCEEDED: no answer within 0.5 s"
    assert (error.retriable, error.sent) == (True, sent)


# --- TLS ------------------------------------------------------------------------------------------------------------


def _credentials(certificate: Certificate) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([(certificate.key.read_bytes(), certificate.cert.read_bytes())])


def test_tls(start_service: StartService, custom: MakeCustom, certificate: Certificate, secret: MakeSecret) -> None:
    service = start_service(_credentials(certificate))
    action = custom(service.address, secure=True, certSecret=secret(certificate.cert.read_text()))
    assert action.invoke(make_call()) == "OK"


def test_another_name_in_the_certificate(
    start_service: StartService, custom: MakeCustom, foreign_certificate: Certificate, secret: MakeSecret
) -> None:
    service = start_service(_credentials(foreign_certificate))
    trusted = {"secure": True, "certSecret": secret(foreign_certificate.cert.read_text())}
    assert not failure_of(custom(service.address, **trusted)).sent
    action = custom(service.address, serverNameOverride="elsewhere.example", **trusted)
    assert action.invoke(make_call()) == "OK"


@pytest.mark.parametrize("trusted", [True, False])
def test_a_server_that_cannot_be_trusted_gets_nothing(
    start_service: StartService,
    custom: MakeCustom,
    *,
    certificate: Certificate,
    foreign_certificate: Certificate,
    secret: MakeSecret,
    trusted: bool,
) -> None:
    service = start_service(_credentials(certificate))
    extra = {"certSecret": secret(foreign_certificate.cert.read_text())} if trusted else {}
    error = failure_of(custom(service.address, secure=True, **extra))
    assert str(error).startswith("FetchResource: UNAVAILABLE: ")
    assert (error.retriable, error.sent) == (True, False)
    assert service.calls == []


def test_a_changed_certificate_needs_no_restart(
    start_service: StartService,
    custom: MakeCustom,
    certificate: Certificate,
    foreign_certificate: Certificate,
    secret: MakeSecret,
) -> None:
    service = start_service(_credentials(certificate))
    action = custom(service.address, secure=True, certSecret=secret(foreign_certificate.cert.read_text()))
    failure_of(action)
    secret(certificate.cert.read_text())
    assert action.invoke(make_call()) == "OK"


def test_a_certificate_that_is_none_is_told_at_once_and_not_shown(custom: MakeCustom, secret: MakeSecret) -> None:
    with pytest.raises(ConfigError) as caught:
        custom("h:1", secure=True, certSecret=secret(CANARY))
    assert str(caught.value) == "the TLS secret `vault` cannot be used: it is not a usable PEM file"


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"serverURL": "http://h:1"}, "must be a server as `host:port`"),
        ({"serverURL": "h"}, "must be a server as `host:port`"),
        ({"serverURL": "unix:/run/x"}, "must be a server as `host:port`"),
        ({"certSecret": {"name": "a", "key": "b"}}, "`certSecret` does nothing without TLS; write `secure: true`"),
        ({"secure": True, "serverNameOverride": "a b"}, "must be a host name"),
        ({"spec": {"a": 1}}, "Input should be a valid string"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CustomSpec.model_validate({"serverURL": "h:1", **fields})
