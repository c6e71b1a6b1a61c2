"""The `nats` action against real NATS servers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import nats
import nkeys
import pytest
from nats.js.api import StreamInfo
from pydantic import ValidationError

from eventbus.errors import ConfigError
from eventbus.events import Event
from sensors.actions import make_action, nats_client
from sensors.actions.nats import NatsAction, NatsSpec
from tests.actions.conftest import (
    CONTEXT,
    Certificate,
    NatsServer,
    RawServer,
    StartNats,
    failure_of,
    make_call,
    parameter,
    unused_port,
)

CANARY = "canary-6f1d"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
StartRaw = Callable[[Callable[[socket.socket], None]], RawServer]
MakeSecret = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def server(start_nats: StartNats) -> NatsServer:
    return start_nats(jetstream=True)


MakeNats = Callable[..., NatsAction]


@pytest.fixture
def publisher() -> Iterator[MakeNats]:
    """Makes actions and closes them."""
    made: list[NatsAction] = []

    def make(url: str, **fields: Any) -> NatsAction:
        made.append(NatsAction(NatsSpec.model_validate({"url": url, "subject": "out", **fields}), CONTEXT))
        return made[-1]

    yield make
    for action in made:
        action.close()


def _received(url: str, subject: str, publish: Callable[[], object], count: int = 1, **options: Any) -> list[Any]:
    """The messages that arrive while something is published."""

    async def listen() -> list[Any]:
        client = await nats.connect(url, **options)
        subscription = await client.subscribe(subject)
        await client.flush()
        await asyncio.to_thread(publish)
        messages = [await subscription.next_msg(10) for _ in range(count)]
        await client.close()
        return messages

    return asyncio.run(listen())


# --- what arrives ---------------------------------------------------------------------------------------------------


def test_a_message_arrives(server: NatsServer) -> None:
    action = make_action("nats", NatsSpec(url=server.url, subject="out.orders"), CONTEXT)
    assert isinstance(action, NatsAction)
    call = make_call(traceparent=PARENT)
    [message] = _received(server.url, "out.>", lambda: action.invoke(call))
    action.close()
    assert message.subject == "out.orders"
    assert message.header == {"Nats-Msg-Id": "action-1", "traceparent": PARENT}
    assert json.loads(message.data)["paid"]["data"] == {"total": 12}


def test_payload_and_parameters_are_applied(server: NatsServer, publisher: MakeNats) -> None:
    action = publisher(
        server.url, subject="", payload=[parameter("total", useRawData=True)], parameters=[parameter("subject", "to")]
    )
    call = make_call(events={"paid": Event.new("shop", "paid", {"total": 12, "to": "out.ann"})})
    [message] = _received(server.url, "out.*", lambda: action.invoke(call))
    assert (message.subject, json.loads(message.data)) == ("out.ann", {"total": 12})


def test_a_stream_keeps_a_repetition_out(server: NatsServer, publisher: MakeNats) -> None:
    action = publisher(server.url, subject="stream.orders")

    async def publish() -> StreamInfo:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="orders", subjects=["stream.>"])
        for call in (make_call(attempt=1), make_call(attempt=2), make_call(id="action-2")):
            assert await asyncio.to_thread(action.invoke, call) == "published"
        info = await stream.stream_info("orders")
        await client.close()
        return info

    assert asyncio.run(publish()).state.messages == 2


def test_calls_run_in_parallel(server: NatsServer, publisher: MakeNats) -> None:
    action = publisher(server.url)

    def publish() -> None:
        with ThreadPoolExecutor(8) as workers:
            list(workers.map(lambda number: action.invoke(make_call(id=f"a-{number}")), range(64)))

    messages = _received(server.url, "out", publish, count=64)
    assert {message.header["Nats-Msg-Id"] for message in messages} == {f"a-{number}" for number in range(64)}


@pytest.mark.parametrize("subject", ["a b", "a.*", "a.>", "a..b", ".a", "out\r\nPUB x 0\r\n", ""])
def test_an_event_cannot_smuggle_anything_into_the_subject(
    server: NatsServer, publisher: MakeNats, subject: str
) -> None:
    action = publisher(server.url, parameters=[parameter("subject", "x")])
    error = failure_of(action, events={"paid": Event.new("shop", "paid", {"x": subject})})
    assert "`subject`" in str(error)
    assert (error.retriable, error.sent) == (False, False)


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_server_that_is_down_got_nothing(publisher: MakeNats) -> None:
    error = failure_of(publisher(f"nats://localhost:{unused_port()}"))
    assert str(error).startswith("no connection: ")
    assert "refused" in str(error) or "Connect call failed" in str(error)
    assert (error.retriable, error.sent) == (True, False)


def test_a_server_that_comes_back_is_used_again(start_nats: StartNats, publisher: MakeNats) -> None:
    server = start_nats()
    action = publisher(server.url)
    assert action.invoke(make_call()) == "published"
    server.stop()
    error = failure_of(action)
    assert error.retriable
    server.start()
    assert action.invoke(make_call()) == "published"


def test_the_next_server_is_tried(server: NatsServer, publisher: MakeNats) -> None:
    action = publisher(f"nats://localhost:{unused_port()}, {server.url}")
    assert action.invoke(make_call()) == "published"


def test_a_message_that_is_too_large_is_final_and_not_sent(start_nats: StartNats, publisher: MakeNats) -> None:
    action = publisher(start_nats("max_payload: 1000").url)
    error = failure_of(action, events={"paid": Event.new("shop", "paid", {"x": "y" * 2000})})
    assert str(error) == "maximum payload exceeded"
    assert (error.retriable, error.sent) == (False, False)


INFO = b'INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"headers":true}\r\n'


def _port(server: RawServer) -> str:
    return server.url.removeprefix("http://").partition("/")[0]


def _ignore(connection: socket.socket) -> None:
    connection.recv(1)


def test_a_server_that_does_not_even_greet_got_nothing(
    raw_server: StartRaw, publisher: MakeNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_client, "TIMEOUT_SECONDS", 0.3)
    error = failure_of(publisher(_port(raw_server(_ignore))))
    assert str(error) == "no connection: no answer within 0.3 s"
    assert (error.retriable, error.sent) == (True, False)


def _answer_once(connection: socket.socket) -> None:
    """Agrees to the connection, and to nothing after it."""
    connection.sendall(INFO)
    heard = b""
    while b"PING" not in heard:
        heard += connection.recv(65536)
    connection.sendall(b"PONG\r\n")
    while b"HPUB" not in heard:
        heard += connection.recv(65536)


def test_a_server_that_does_not_confirm_may_have_got_it(
    raw_server: StartRaw, publisher: MakeNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall_silent(connection: socket.socket) -> None:
        _answer_once(connection)
        while connection.recv(65536):
            pass

    monkeypatch.setattr(nats_client, "TIMEOUT_SECONDS", 0.5)
    error = failure_of(publisher(_port(raw_server(fall_silent))))
    assert str(error) == "no answer within 0.5 s"
    assert (error.retriable, error.sent) == (True, True)


def test_a_connection_that_breaks_may_have_carried_it(raw_server: StartRaw, publisher: MakeNats) -> None:
    error = failure_of(publisher(_port(raw_server(_answer_once))))
    assert str(error).startswith("the connection broke")
    assert (error.retriable, error.sent) == (True, True)


# --- who we are -----------------------------------------------------------------------------------------------------


PREFIXES = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
LIMITS = dict.fromkeys(("subs", "data", "payload", "conn", "leaf", "imports", "exports"), -1) | {"wildcards": True}
SEED = b"SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU"


def _jwt(issuer: Any, subject: bytes, claims: dict[str, Any]) -> str:
    """A token as NATS signs them."""

    def part(document: dict[str, Any] | bytes) -> str:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        return urlsafe_b64encode(data).rstrip(b"=").decode()

    body = {
        "iss": issuer.public_key.decode(),
        "sub": subject.decode(),
        "name": "n",
        "iat": 1,
        "jti": "x",
        "nats": claims,
    }
    signed = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(body)}"
    return f"{signed}.{part(issuer.sign(signed.encode()))}"


def _nkey() -> tuple[str, str]:
    pair = nkeys.from_seed(bytearray(SEED))
    return SEED.decode(), pair.public_key.decode()


def test_a_name_and_a_password(start_nats: StartNats, publisher: MakeNats, secret: MakeSecret) -> None:
    server = start_nats(f"authorization {{user: jane, password: {CANARY}}}")
    basic = {"username": secret("jane", "user"), "password": secret("wrong-7c2e", "password")}
    action = publisher(server.url, auth={"basic": basic})
    error = failure_of(action)
    assert str(error) == "no connection: Authorization Violation"
    assert (error.retriable, error.sent) == (False, False)
    secret(CANARY, "password")
    assert action.invoke(make_call()) == "published"


def test_a_secret_that_changes_disturbs_nobody(start_nats: StartNats, publisher: MakeNats, secret: MakeSecret) -> None:
    server = start_nats("authorization {users: [{user: a, password: p}, {user: b, password: p}]}")
    basic = {"username": secret("a", "user"), "password": secret("p", "password")}
    action = publisher(server.url, auth={"basic": basic})

    def publish(number: int) -> str:
        if number % 10 == 0:
            secret("ab"[number // 10 % 2], "user")
        return action.invoke(make_call(id=f"a-{number}"))

    with ThreadPoolExecutor(8) as workers:
        outcomes = list(workers.map(publish, range(100)))
    assert outcomes == ["published"] * 100


def test_a_token(start_nats: StartNats, publisher: MakeNats, secret: MakeSecret) -> None:
    server = start_nats(f"authorization {{token: {CANARY}}}")
    assert publisher(server.url, auth={"token": secret(CANARY)}).invoke(make_call()) == "published"
    error = failure_of(publisher(server.url, auth={"token": secret("wrong-7c2e", "other")}))
    assert (str(error), error.retriable) == ("no connection: Authorization Violation", False)


def test_an_nkey(start_nats: StartNats, publisher: MakeNats, secret: MakeSecret) -> None:
    seed, public = _nkey()
    server = start_nats(f"authorization {{users: [{{nkey: {public}}}]}}")
    assert publisher(server.url, auth={"nkey": secret(seed)}).invoke(make_call()) == "published"


@pytest.mark.parametrize("kind", ["nkey", "credential"])
@pytest.mark.parametrize("text", ["canary", "SUA" + "1" * 55, "-----BEGIN NATS USER JWT-----\ncanary\n", ""])
def test_a_key_that_is_none_is_told_at_once_and_not_shown(
    publisher: MakeNats, secret: MakeSecret, kind: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=f"the secret of `{kind}` is not") as caught:
        publisher("h:4222", auth={kind: secret(text)})
    assert "canary" not in str(caught.value)


def test_a_credentials_file(start_nats: StartNats, publisher: MakeNats, secret: MakeSecret) -> None:
    operator, account, user = (nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix)) for prefix in PREFIXES)
    account_jwt = _jwt(operator, account.public_key, {"type": "account", "version": 2, "limits": LIMITS})
    user_jwt = _jwt(account, user.public_key, {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1})
    operator_jwt = _jwt(operator, operator.public_key, {"type": "operator", "version": 2})
    server = start_nats(
        f"operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload {{{account.public_key.decode()}: {account_jwt}}}"
    )
    file = (
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    action = publisher(server.url, auth={"credential": secret(file)})
    assert action.invoke(make_call()) == "published"


def test_a_subject_that_we_may_not_publish_to_is_final(
    start_nats: StartNats, publisher: MakeNats, secret: MakeSecret
) -> None:
    permissions = '{publish: {deny: ["secret.>"]}}'
    server = start_nats(f"authorization {{users: [{{user: u, password: p, permissions: {permissions}}}]}}")
    basic = {"username": secret("u", "user"), "password": secret("p", "password")}
    action = publisher(server.url, auth={"basic": basic}, parameters=[parameter("subject", "x")])

    def call(subject: str) -> dict[str, Any]:
        return {"events": {"paid": Event.new("shop", "paid", {"x": subject})}}

    error = failure_of(action, **call("secret.orders"))
    assert str(error) == "the server does not let us publish to `secret.orders`"
    assert (error.retriable, error.sent) == (False, False)
    assert str(failure_of(action, **call("secret.Orders"))) == "the server does not let us publish to `secret.Orders`"
    assert action.invoke(make_call(**call("out"))) == "published"
    with ThreadPoolExecutor(8) as workers:
        outcomes = list(workers.map(lambda _: str(failure_of(action, **call("secret.orders"))), range(16)))
    assert set(outcomes) == {str(error)}


def test_a_secret_that_is_not_there_is_told_at_once(server: NatsServer, secret: MakeSecret) -> None:
    auth = {"token": {**secret("x"), "key": "gone"}}
    with pytest.raises(ConfigError, match="the key `gone` of the secret `vault` is not there"):
        NatsAction(NatsSpec.model_validate({"url": server.url, "subject": "out", "auth": auth}), CONTEXT)


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_tls(start_nats: StartNats, publisher: MakeNats, certificate: Certificate) -> None:
    server = start_nats(f'tls {{cert_file: "{certificate.cert}", key_file: "{certificate.key}"}}')
    trusting = publisher(server.url, tls={"caCertFile": str(certificate.cert)})
    assert trusting.invoke(make_call()) == "published"
    for careful in (publisher(server.url, tls={}), publisher(server.url.replace("nats:", "tls:"))):
        error = failure_of(careful)
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)
        assert (error.retriable, error.sent) == (True, False)


def test_tls_is_not_given_up_where_the_server_does_not_ask_for_it(
    raw_server: StartRaw, publisher: MakeNats, secret: MakeSecret
) -> None:
    heard: Queue[bytes] = Queue()

    def eavesdrop(connection: socket.socket) -> None:
        connection.sendall(INFO)
        heard.put(connection.recv(65536))

    error = failure_of(publisher(_port(raw_server(eavesdrop)), tls={}, auth={"token": secret(CANARY)}))
    assert "the server does not ask for TLS" in str(error)
    assert (error.retriable, error.sent) == (True, False)
    assert heard.get(timeout=10) == b""


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": ""}, "must be one or more NATS servers"),
        ({"url": "http://h:1"}, "must be one or more NATS servers"),
        ({"url": "nats://u:p@h:4222"}, "must not contain a user name, password or token"),
        ({"subject": "a.*"}, "must be words with `.` between them"),
        ({"auth": {}}, "must have exactly one of `basic`, `token`, `nkey` and `credential`"),
        ({"parameters": [parameter("url")]}, "`dest` cannot be `url`"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        NatsSpec.model_validate({"url": "h:4222", "subject": "s", **fields})
