"""Messages of Amazon SQS become events, at least once."""

from __future__ import annotations

import json
import socket
from base64 import b64decode
from collections.abc import Callable, Iterator
from threading import Event as Flag
from typing import Any

import pytest

from eventbus import Bus, Event
from eventsources.base import Identity, SourceError
from eventsources.runner import SourceRunner
from eventsources.sources.sqs import SqsSource, SqsSpec
from sensors import extras
from sensors.spec.problems import ManifestError
from tests.actions.conftest import HttpServer, Reply, http_server, raw_server, read_request
from tests.eventsources.acknowledging_contract import AcknowledgingContract, Broker
from tests.eventsources.fetching import fetching, running, until
from tests.eventsources.moto_server import REGION, MotoServer
from tests.eventsources.relay import Relay
from tests.eventsources.serving import events_on, letters_on, manifest, metric

__all__ = ["http_server", "raw_server"]

IDENTITY = Identity("orders", "order", "sqs")
CANARY = "canary-6f1d"
HIDDEN_SECONDS = 4
"""So long nobody else gets what was read: as short as some tests want it, and as long as a slow machine needs it."""
LONG = {"VisibilityTimeout": "600"}
MakeSecret = Callable[..., dict[str, str]]


class SqsBroker(Broker):
    """The queue `orders`, and a way to it that can be cut."""

    kind = "sqs"
    many = 45

    def __init__(self, server: MotoServer) -> None:
        self.server = server
        self.relay = Relay("127.0.0.1", server.port)
        self.client = server.client("sqs")
        self.url = ""
        self._right = "", ("", "")

    def spec(self, **changes: Any) -> dict[str, Any]:
        endpoint = f"http://127.0.0.1:{self.relay.port}"
        return {"region": REGION, "queue": "orders", "waitTimeSeconds": 1, "endpoint": endpoint, **changes}

    def open(self, **attributes: str) -> None:
        settings = {"VisibilityTimeout": str(HIDDEN_SECONDS), **attributes}
        self.url = self.client.create_queue(QueueName="orders", Attributes=settings)["QueueUrl"]

    def send(self, *texts: str) -> None:
        entries = [{"Id": str(number), "MessageBody": text} for number, text in enumerate(texts)]
        for first in range(0, len(entries), 10):
            self.client.send_message_batch(QueueUrl=self.url, Entries=entries[first : first + 10])

    def unacknowledged(self) -> int:
        return self._count("ApproximateNumberOfMessages") + self.invisible()

    def invisible(self) -> int:
        return self._count("ApproximateNumberOfMessagesNotVisible")

    def text_of(self, event: Event) -> str:
        return b64decode(event.json()["body"]).decode()

    def start(self) -> None:
        self.relay.mend()

    def stop(self) -> None:
        self.relay.cut()

    def protect(self, password: str) -> None:
        """AWS chooses the secret key: it stands for the password."""
        keys = self.server.protect()
        self._right = password, keys
        self.client.close()
        self.client = self.server.client("sqs", keys)

    def proof(self, password: str, secret: MakeSecret) -> dict[str, Any]:
        right, (access, key) = self._right
        return {
            "accessKey": secret(access, "access"),
            "secretKey": secret(key if password == right else password, "secret"),
        }

    def is_refusal(self, message: str) -> bool:
        return "SignatureDoesNotMatch" in message or "credentials" in message

    def forget_readers(self) -> None:
        until(lambda: self.invisible() == 0)

    def close(self) -> None:
        self.client.close()
        self.relay.cut()

    def _count(self, name: str) -> int:
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=[name])
        return int(answer["Attributes"][name])


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    server = MotoServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own credentials are the environment's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMACHINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "machine")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def broker(moto: MotoServer) -> Iterator[SqsBroker]:
    made = SqsBroker(moto)
    yield made
    made.close()
    moto.reset()


class TestAcknowledging(AcknowledgingContract):
    """See there."""


# --- what an event looks like ---------------------------------------------------------------------------------------


def test_what_an_event_looks_like(broker: SqsBroker, bus: Bus) -> None:
    broker.open()
    attributes = {
        "colour": {"DataType": "String", "StringValue": "blue"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\xff1"},
    }
    sent = broker.client.send_message(QueueUrl=broker.url, MessageBody="hello", MessageAttributes=attributes)
    with fetching(broker.source(metadata={"shop": "eu"}), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
    assert event.json() == {
        "messageId": sent["MessageId"],
        "messageAttributes": {
            "colour": {"DataType": "String", "StringValue": "blue"},
            "raw": {"DataType": "Binary", "BinaryValue": "/zE="},
        },
        "body": "aGVsbG8=",
        "metadata": {"shop": "eu"},
    }
    assert (event.id, event.source, event.subject, event.type) == (sent["MessageId"], "orders", "order", "sqs")


def test_notifications_of_s3_come_as_they_are(broker: SqsBroker, bus: Bus) -> None:
    text = '{"Records":[{"eventName":"ObjectCreated:Put","s3":{"object":{"key":"a+b.txt","size":1.10}}}]}'
    broker.open()
    broker.send(text, '{"Service":"Amazon S3","Event":"s3:TestEvent"}')
    with fetching(broker.source(jsonBody=True), bus, broker.identity) as fetcher:
        created, test = fetcher.wait_for(2)
    assert f'"body":{text}}}'.encode() in (created.data or b"")
    assert test.json()["body"]["Event"] == "s3:TestEvent"


def test_a_filter_reaches_into_the_body(broker: SqsBroker, bus: Bus) -> None:
    broker.open(**LONG)
    broker.send('{"n": 1}', '{"n": 2}')
    spec = broker.spec(jsonBody=True, filter={"expression": "body.n > 1"})
    with running(manifest("sqs", "orders", order=spec), bus):
        until(lambda: broker.unacknowledged() == 0)
    assert [event.json()["body"]["n"] for event in events_on(bus)] == [2]


# --- poison ---------------------------------------------------------------------------------------------------------


def test_what_is_no_json_is_kept_by_us_and_holds_nobody_up(broker: SqsBroker, bus: Bus) -> None:
    broker.open(**LONG)
    broker.send("{", '{"n": 1}', "text")
    with fetching(broker.source(jsonBody=True), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
        until(lambda: broker.unacknowledged() == 0)
    assert event.json()["body"] == {"n": 1}
    assert sorted(value or b"" for _, value in letters_on(bus)) == [b"text", b"{"]


def test_with_dlq_what_is_no_json_is_left_to_the_queue(
    broker: SqsBroker, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    broker.open(**LONG)
    broker.send("{", '{"n": 1}')
    with fetching(broker.source(jsonBody=True, dlq=True), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
        until(lambda: broker.unacknowledged() < 2)
    assert (broker.unacknowledged(), broker.invisible()) == (1, 1)
    assert event.json()["body"] == {"n": 1}
    assert caplog.text.count("is not JSON: left to the dead-letter queue of `orders`") == 1
    assert letters_on(bus) == []


def test_what_cannot_be_deleted_is_told(broker: SqsBroker, bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    broker.open()
    broker.send("a")

    def purge(_: Any) -> None:
        broker.client.purge_queue(QueueUrl=broker.url)

    with fetching(broker.source(), bus, broker.identity, after=purge) as fetcher:
        [event] = fetcher.wait_for(1)
        until(lambda: "cannot be deleted" in caplog.text)
    said = f"orders/order: the message `{event.id}` was delivered and cannot be deleted (ReceiptHandleIsInvalid)"
    assert said in caplog.text


# --- several replicas, and slow deliveries --------------------------------------------------------------------------


def test_replicas_share_the_messages(broker: SqsBroker, bus: Bus) -> None:
    broker.open(**LONG)
    sent: list[str] = []
    made = manifest("sqs", "orders", order=broker.spec())
    with running(made, bus) as one, running(made, bus) as other:

        def is_shared() -> bool:
            texts = [f"{len(sent)}-{number}" for number in range(10)]
            broker.send(*texts)
            sent.extend(texts)
            return all(published(each) for each in (one, other))

        until(is_shared)
        until(lambda: broker.unacknowledged() == 0)
    by_id = {event.id: broker.text_of(event) for event in events_on(bus)}  # SQS may give one message to both
    assert sorted(by_id.values()) == sorted(sent)


def published(runner: SourceRunner) -> float:
    labels = {"eventsource": "orders", "event": "order", "outcome": "published"}
    return metric(runner, "eventbus_source_events_total", **labels)


def test_what_takes_longer_than_the_visibility_timeout_comes_again_with_the_same_id(
    broker: SqsBroker, bus: Bus
) -> None:
    again = Flag()
    broker.open(VisibilityTimeout="1")
    broker.send("a")
    with fetching(broker.source(), bus, broker.identity, before=lambda _: until(again.is_set)) as slow:
        until(lambda: broker.invisible() == 1)
        with fetching(broker.source(), bus, broker.identity, before=lambda _: again.set()) as other:
            first, second = slow.wait_for(1)[0], other.wait_for(1)[0]
            until(lambda: broker.unacknowledged() == 0)
    assert first.id == second.id


# --- who we are -----------------------------------------------------------------------------------------------------


def test_a_role_and_a_token(
    http_server: HttpServer, bus: Bus, secret: MakeSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS is told by keys with a token who wants the role; the queue is then asked with the role's keys."""
    http_server.reply = Reply(
        body=b"""<AssumeRoleResponse><AssumeRoleResult><Credentials>
        <AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
        <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
    )
    fields = {
        "accessKey": secret("AKIAEXAMPLE", "access"),
        "secretKey": secret(CANARY, "secret"),
        "sessionToken": secret("token-2f", "token"),
        "roleARN": "arn:aws:iam::123456789012:role/reader",
        "endpoint": http_server.url,
    }
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", http_server.url)
    failure_with(http_server, bus, fields)
    assume, asked, *_ = http_server.requests
    assert b"RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Freader" in assume.body
    assert assume.headers["X-Amz-Security-Token"] == "token-2f"
    assert "Credential=ASIAROLE/" in asked.headers["Authorization"]
    assert "/eu-west-1/sqs/" in asked.headers["Authorization"]
    assert CANARY not in repr(http_server.requests)


def test_a_queue_of_another_account(http_server: HttpServer, bus: Bus) -> None:
    http_server.reply = Reply(400, body=b'{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no"}')
    error = failure_with(http_server, bus, {"queueAccountId": "210987654321"})
    assert str(error) == "the queue `orders`: AWS answered 400 QueueDoesNotExist: no"
    [asked] = http_server.requests
    assert json.loads(asked.body) == {"QueueName": "orders", "QueueOwnerAWSAccountId": "210987654321"}


def failure_with(server: HttpServer, bus: Bus, fields: dict[str, Any]) -> SourceError:
    spec = {"region": REGION, "queue": "orders", "endpoint": server.url, **fields}
    with fetching(SqsSource(SqsSpec.model_validate(spec)), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert "\n" not in str(error)
    return error


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_queue_that_is_not_there_is_read_as_soon_as_it_is(broker: SqsBroker, bus: Bus, caplog: Any) -> None:
    with running(manifest("sqs", "orders", order=broker.spec()), bus):
        until(lambda: "orders/order: the queue `orders`: AWS answered 400 " in caplog.text)
        broker.open()
        broker.send("a")
        until(lambda: broker.texts(events_on(bus)) == ["a"])
    assert "does not exist" in caplog.text


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDeniedException"), (403, "ExpiredToken"), (400, "RequestThrottled"), (503, "ServiceUnavailable")],
)
def test_aws_says_no_and_is_asked_once(
    http_server: HttpServer, bus: Bus, secret: MakeSecret, status: int, code: str
) -> None:
    said = json.dumps({"__type": f"com.amazonaws.sqs#{code}", "message": f"you {CANARY}\nmay not"}).encode()
    http_server.reply = Reply(status, body=said)
    keys = {"accessKey": secret("AKIAEXAMPLE", "access"), "secretKey": secret(CANARY, "secret")}
    error = failure_with(http_server, bus, keys)
    assert str(error) == f"the queue `orders`: AWS answered {status} {code}: you <secret> may not"
    assert len(http_server.requests) == 1


@pytest.mark.parametrize(
    "body", [b"<html>", b'{"QueueUrl": 1}', b'{"QueueUrl": "http://q", "Messages": [{"MessageId": "1"}]}']
)
def test_answers_that_are_none(http_server: HttpServer, bus: Bus, body: bytes) -> None:
    http_server.reply = Reply(200, body=body)
    assert str(failure_with(http_server, bus, {})).startswith("the queue `orders`: this is no answer of SQS: ")


def test_a_server_that_closes_while_it_answers(broker: SqsBroker, bus: Bus, raw_server: Any) -> None:
    def break_off(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    with fetching(broker.source(endpoint=raw_server(break_off).url), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).startswith("the queue `orders`: this is no answer of SQS: ")


def test_a_server_that_is_not_there(broker: SqsBroker, bus: Bus) -> None:
    broker.stop()
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).startswith("the queue `orders`: AWS: Could not connect to the endpoint URL")
    broker.start()


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queue": "https://sqs.eu-west-1.amazonaws.com/1/q"}, "must be the name of a queue, not its URL or ARN"),
        ({"queue": ""}, "must be the name of a queue"),
        ({"queueAccountId": "12"}, "must be the 12 digits of an account"),
        ({"waitTimeSeconds": 21}, "waitTimeSeconds"),
        ({"endpoint": "localhost:4566"}, "must be a URL such as"),
        ({"region": ""}, "must be the name of a region"),
        ({"accessKey": {"name": "a", "key": "b"}}, "`accessKey` needs `secretKey`"),
        ({"sessionToken": {"name": "a", "key": "b"}}, "`sessionToken` needs `accessKey`"),
    ],
)
def test_what_is_wrong_is_told(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("sqs", order={"region": REGION, "queue": "orders", **fields})
    assert message in str(error.value)


def test_a_client_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ManifestError) as error:
        manifest("sqs", order={"region": REGION, "queue": "orders"})
    assert "this needs packages that are not installed: install `kafka-eventbus[aws]`" in str(error.value)
