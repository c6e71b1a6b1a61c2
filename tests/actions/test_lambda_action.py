"""The `awsLambda` action against an emulator of AWS, and against servers that misbehave."""

from __future__ import annotations

import base64
import io
import json
import socket
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3
from botocore.session import Session
from moto.server import ThreadedMotoServer
from pydantic import ValidationError

from eventbus.errors import ConfigError
from eventbus.events import Event
from sensors.actions import aws_client, make_action
from sensors.actions.aws_lambda import LambdaAction, LambdaSpec
from tests.actions.conftest import (
    CONTEXT,
    HttpServer,
    RawServer,
    Reply,
    failure_of,
    make_call,
    parameter,
    read_request,
    unused_port,
)

CANARY = "canary-6f1d"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ROLE = "arn:aws:iam::123456789012:role/caller"
StartRaw = Callable[[Callable[[socket.socket], None]], RawServer]
MakeSecret = Callable[..., dict[str, str]]
MakeLambda = Callable[..., LambdaAction]


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """The address of an AWS that has a function, `ship`, which answers with its input."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    urllib3.request("POST", f"{address}/moto-api/config", json={"lambda": {"use_docker": False}})
    session = Session()
    session.set_credentials("testing", "testing")
    iam, functions = (
        session.create_client(service, region_name="eu-west-1", endpoint_url=address) for service in ("iam", "lambda")
    )
    role = iam.create_role(RoleName="caller", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("main.py", "def handler(event, context): return event")
    functions.create_function(
        FunctionName="ship", Runtime="python3.13", Role=role, Handler="main.handler", Code={"ZipFile": code.getvalue()}
    )
    iam.close()
    functions.close()
    yield address
    server.stop()


@pytest.fixture
def function(secret: MakeSecret, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeLambda]:
    """Makes actions and closes them."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    made: list[LambdaAction] = []

    def make(address: str, **fields: Any) -> LambdaAction:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        keys = {"accessKey": secret("AKIAEXAMPLE", "access"), "secretKey": secret(CANARY, "secret")}
        spec = {"functionName": "ship", "region": "eu-west-1", **keys, **fields}
        made.append(LambdaAction(LambdaSpec.model_validate(spec), CONTEXT))
        return made[-1]

    yield make
    for action in made:
        action.close()


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_a_function_is_invoked(aws: str, function: MakeLambda) -> None:
    assert function(aws).invoke(make_call()) == "200"


def test_the_registry_makes_lambda_actions(function: MakeLambda) -> None:
    action = make_action("awsLambda", LambdaSpec(functionName="f", region="eu-west-1"), CONTEXT)
    assert isinstance(action, LambdaAction)
    action.close()


def test_a_function_that_is_not_waited_for(aws: str, function: MakeLambda) -> None:
    assert function(aws, invocationType="Event").invoke(make_call()) == "202"


def test_what_the_function_gets(http_server: HttpServer, function: MakeLambda) -> None:
    call = make_call(traceparent=PARENT)
    function(http_server.url, payload=[parameter("order.total", useRawData=True)]).invoke(call)
    function(http_server.url, invocationType="DryRun").invoke(call)
    first, second = http_server.requests
    assert (first.method, first.path) == ("POST", "/hook/2015-03-31/functions/ship/invocations")
    assert first.headers["X-Amz-Invocation-Type"] == "RequestResponse"
    assert second.headers["X-Amz-Invocation-Type"] == "DryRun"
    assert json.loads(first.body) == {"order": {"total": 12}}
    assert json.loads(second.body)["paid"]["data"] == {"total": 12}
    context = json.loads(base64.b64decode(first.headers["X-Amz-Client-Context"]))
    assert context == {"custom": {"idempotencyKey": "action-1", "traceparent": PARENT}}
    assert "Credential=AKIAEXAMPLE/" in first.headers["Authorization"]
    assert "/eu-west-1/lambda/" in first.headers["Authorization"]
    assert CANARY not in repr(http_server.requests)


def test_parameters_are_applied(http_server: HttpServer, function: MakeLambda) -> None:
    parameters = [parameter("functionName", "f"), parameter("invocationType", "how")]
    event = Event.new("shop", "paid", {"f": "bill:2", "how": "Event"})
    function(http_server.url, functionName="", parameters=parameters).invoke(make_call(events={"paid": event}))
    (request,) = http_server.requests
    assert request.path == "/hook/2015-03-31/functions/bill%3A2/invocations"
    assert request.headers["X-Amz-Invocation-Type"] == "Event"


@pytest.mark.parametrize("name", ["../../secrets", "a b", "", "x" * 300])
def test_an_event_cannot_name_anything_but_a_function(http_server: HttpServer, function: MakeLambda, name: str) -> None:
    action = function(http_server.url, parameters=[parameter("functionName", "f")])
    error = failure_of(action, events={"paid": Event.new("shop", "paid", {"f": name})})
    assert "`functionName`" in str(error)
    assert (error.retriable, error.sent) == (False, False)
    assert http_server.requests == []


# --- who we are -----------------------------------------------------------------------------------------------------


def test_a_role_is_assumed(aws: str, function: MakeLambda) -> None:
    action = function(aws, roleARN=ROLE)
    assert [action.invoke(make_call()), action.invoke(make_call())] == ["200", "200"]


def test_a_roles_credentials_are_fetched_once_and_used(http_server: HttpServer, function: MakeLambda) -> None:
    http_server.reply = Reply(
        body=b"""<AssumeRoleResponse><AssumeRoleResult><Credentials>
        <AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
        <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
    )
    action = function(http_server.url, roleARN=ROLE)
    action.invoke(make_call())
    action.invoke(make_call())
    assume, *invocations = http_server.requests
    assert b"Action=AssumeRole" in assume.body
    assert b"RoleSessionName=kafka-eventbus" in assume.body
    assert "Credential=AKIAEXAMPLE/" in assume.headers["Authorization"]
    assert ["Credential=ASIAROLE/" in request.headers["Authorization"] for request in invocations] == [True, True]


def test_a_role_that_cannot_be_assumed_means_that_nothing_was_sent(
    http_server: HttpServer, function: MakeLambda
) -> None:
    http_server.reply = Reply(503, body=b"<ErrorResponse><Error><Code>Busy</Code></Error></ErrorResponse>")
    error = failure_of(function(http_server.url, roleARN=ROLE))
    assert str(error) == "AWS answered 503 Busy"
    assert (error.retriable, error.sent) == (True, False)
    assert len(http_server.requests) == 1


def test_without_keys_the_machines_credentials_are_used(
    http_server: HttpServer, function: MakeLambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    action = function(http_server.url, accessKey=None, secretKey=None)
    error = failure_of(action)
    assert str(error) == "AWS: Unable to locate credentials"
    assert (error.retriable, error.sent) == (True, False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMACHINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    function(http_server.url, accessKey=None, secretKey=None).invoke(make_call())
    assert "Credential=AKIAMACHINE/" in http_server.requests[0].headers["Authorization"]


def test_unknown_keys_are_refused(aws: str, function: MakeLambda) -> None:
    urllib3.request("POST", f"{aws}/moto-api/reset-auth", body=b"0")
    error = failure_of(function(aws))
    urllib3.request("POST", f"{aws}/moto-api/reset-auth", body=b"inf")
    assert "InvalidClientTokenId" in str(error)
    assert (error.retriable, error.sent, error.status) == (False, False, "403")


def test_wrong_keys_are_final_and_not_shown_even_if_the_server_repeats_them(
    http_server: HttpServer, function: MakeLambda
) -> None:
    body = json.dumps({"message": f"the secret {CANARY} is wrong"}).encode()
    http_server.reply = Reply(403, {"X-Amzn-ErrorType": "InvalidSignatureException"}, body)
    error = failure_of(function(http_server.url))
    assert str(error) == "AWS answered 403 InvalidSignatureException: the secret <secret> is wrong"
    assert (error.retriable, error.sent, error.status) == (False, False, "403")


def test_a_changed_key_needs_no_restart(http_server: HttpServer, function: MakeLambda, secret: MakeSecret) -> None:
    action = function(http_server.url)
    secret("AKIANEW", "access")
    action.invoke(make_call())
    assert "Credential=AKIANEW/" in http_server.requests[0].headers["Authorization"]


def test_a_secret_that_is_not_there_is_told_at_once(function: MakeLambda) -> None:
    with pytest.raises(ConfigError, match="the key `gone` of the secret `vault` is not there"):
        function("http://localhost:1", accessKey={"name": "vault", "key": "gone"})


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "retriable", "sent"),
    [
        (429, "TooManyRequestsException", True, False),
        (500, "ServiceException", True, True),
        (502, "EC2UnexpectedException", True, True),
        (400, "InvalidRequestContentException", False, False),
        (404, "ResourceNotFoundException", False, False),
    ],
)
def test_lambda_says_no_and_is_asked_once(
    http_server: HttpServer, function: MakeLambda, *, status: int, code: str, retriable: bool, sent: bool
) -> None:
    http_server.reply = Reply(status, {"X-Amzn-ErrorType": code}, b'{"message":"sorry"}')
    error = failure_of(function(http_server.url))
    assert str(error) == f"AWS answered {status} {code}: sorry"
    assert (error.retriable, error.sent, error.status) == (retriable, sent, str(status))
    assert len(http_server.requests) == 1


def test_a_function_that_fails_is_a_failure(http_server: HttpServer, function: MakeLambda) -> None:
    http_server.reply = Reply(200, {"X-Amz-Function-Error": "Unhandled"}, b'{"errorMessage": "no stock"}')
    error = failure_of(function(http_server.url))
    assert str(error) == 'the function failed: {"errorMessage": "no stock"}'
    assert (error.retriable, error.sent, error.status) == (True, True, "Unhandled")


def test_an_address_where_nobody_answers_got_nothing(function: MakeLambda) -> None:
    error = failure_of(function(f"http://127.0.0.1:{unused_port()}"))
    assert "Could not connect to the endpoint URL" in str(error)
    assert (error.retriable, error.sent) == (True, False)


def test_a_call_that_is_not_answered_may_have_been_made(
    raw_server: StartRaw, function: MakeLambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallow(connection: socket.socket) -> None:
        read_request(connection)
        connection.recv(1)

    monkeypatch.setattr(aws_client, "READ_SECONDS", 1)
    error = failure_of(function(raw_server(swallow).url))
    assert str(error) == "AWS: no answer within 1 s"
    assert (error.retriable, error.sent) == (True, True)


def test_a_connection_that_breaks_may_have_carried_it(raw_server: StartRaw, function: MakeLambda) -> None:
    def break_off(connection: socket.socket) -> None:
        read_request(connection)

    error = failure_of(function(raw_server(break_off).url))
    assert "Connection was closed before we received a valid response" in str(error)
    assert (error.retriable, error.sent) == (True, True)


def test_an_answer_that_is_cut_off_may_be_of_a_call_that_was_made(raw_server: StartRaw, function: MakeLambda) -> None:
    def cut_off(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    error = failure_of(function(raw_server(cut_off).url))
    assert str(error).startswith("AWS: ")
    assert (error.retriable, error.sent) == (True, True)


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"functionName": "a b"}, "must be the name or the ARN of a function"),
        ({"region": "Europe!"}, "must be the name of a region"),
        ({"roleARN": "admin"}, "must be the ARN of a role"),
        ({"invocationType": "Maybe"}, "Input should be 'RequestResponse', 'Event' or 'DryRun'"),
        ({"accessKey": {"name": "a", "key": "b"}}, "`accessKey` needs `secretKey`"),
        ({"parameters": [parameter("roleARN")]}, "`dest` cannot be `roleARN`"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LambdaSpec.model_validate({"functionName": "f", "region": "eu-west-1", **fields})
