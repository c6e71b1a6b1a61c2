"""The `http` action against real servers: what it sends, what it makes of the answer, and whether anything left."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from eventbus.cloudevents import from_json
from eventbus.errors import ConfigError
from eventbus.events import Event
from sensors.actions import make_action
from sensors.actions.base import ActionError
from sensors.actions.deadline import DeadlineReader
from sensors.actions.http import HttpAction, HttpSpec
from sensors.actions.http_client import MAX_BODY
from sensors.spec.policy import Policy
from tests.actions.conftest import CONTEXT, Certificate, HttpServer, RawServer, Reply, make_call, read_request

NOW = 1_800_000_000
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
StartRaw = Callable[[Callable[[socket.socket], None]], RawServer]
MakeHttp = Callable[..., HttpAction]


@pytest.fixture
def http() -> Iterator[MakeHttp]:
    """Makes actions and closes them."""
    made: list[HttpAction] = []

    def make(url: str, **spec: Any) -> HttpAction:
        made.append(HttpAction(HttpSpec.model_validate({"url": url, **spec}), CONTEXT, now=lambda: NOW))
        return made[-1]

    yield make
    for action in made:
        action.close()


def _failure(action: HttpAction, **call: Any) -> ActionError:
    with pytest.raises(ActionError) as caught:
        action.invoke(make_call(**call))
    return caught.value


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_the_registry_makes_http_actions(http_server: HttpServer) -> None:
    action = make_action("http", HttpSpec(url=http_server.url), CONTEXT)
    assert isinstance(action, HttpAction)
    assert action.invoke(make_call()) == "200"
    action.close()


def test_without_a_payload_the_body_holds_the_events_of_all_dependencies(
    http_server: HttpServer, http: MakeHttp
) -> None:
    events = {
        "paid": Event.new("shop", "paid", {"total": 12}, id="1"),
        "packed": Event.new("depot", "packed", b"\xff\x00", id="2", datacontenttype="image/png"),
    }
    http(http_server.url).invoke(make_call(events=events))
    (request,) = http_server.requests
    assert (request.method, request.path) == ("POST", "/hook")
    assert request.headers["Content-Type"] == "application/json"
    documents = msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
    assert {name: from_json(document) for name, document in documents.items()} == events


def test_every_attempt_carries_the_same_idempotency_key(http_server: HttpServer, http: MakeHttp) -> None:
    action = http(http_server.url)
    action.invoke(make_call(attempt=1))
    action.invoke(make_call(attempt=2))
    assert [request.headers["Idempotency-Key"] for request in http_server.requests] == ["action-1", "action-1"]


def test_a_payload_is_sent_as_described(http_server: HttpServer, http: MakeHttp) -> None:
    source = {"dependencyName": "paid", "dataKey": "total", "useRawData": True}
    action = http(http_server.url, payload=[{"src": source, "dest": "order.total"}], method="PUT")
    action.invoke(make_call())
    (request,) = http_server.requests
    assert request.method == "PUT"
    assert json.loads(request.body) == {"order": {"total": 12}}


def test_a_payload_that_cannot_be_made_is_a_permanent_error_and_nothing_is_sent(
    http_server: HttpServer, http: MakeHttp
) -> None:
    error = _failure(http(http_server.url, payload=[{"src": {"dependencyName": "paid", "dataKey": "x"}, "dest": "y"}]))
    assert str(error) == (
        "the payload cannot be made: dependency `paid`: event `e-1` has no `x` in its data, "
        "and the parameter has no default"
    )
    assert (error.retriable, error.sent) == (False, False)
    assert http_server.requests == []


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_requests_that_ask_or_delete_have_no_body_unless_one_is_described(
    http_server: HttpServer, http: MakeHttp, method: str
) -> None:
    http(http_server.url, method=method).invoke(make_call())
    http(http_server.url, method=method, payload=[]).invoke(make_call())
    assert [request.body for request in http_server.requests] == [b"", b"{}"]


def test_headers_are_added_and_may_replace_the_content_type(http_server: HttpServer, http: MakeHttp) -> None:
    http(http_server.url, headers={"X-Team": "shop", "content-type": "text/csv"}).invoke(make_call())
    (request,) = http_server.requests
    assert request.headers["X-Team"] == "shop"
    assert [value for name, value in request.headers.items() if name.lower() == "content-type"] == ["text/csv"]


def test_the_trace_context_is_passed_on(http_server: HttpServer, http: MakeHttp) -> None:
    http(http_server.url).invoke(make_call(traceparent=PARENT, tracestate="vendor=1"))
    headers = http_server.requests[0].headers
    assert (headers["traceparent"], headers["tracestate"]) == (PARENT, "vendor=1")


@pytest.mark.parametrize("parent", [None, "x", f"{PARENT}\r\nX-Evil: 1", f"{PARENT}\n"])
def test_a_trace_context_that_is_none_is_not_passed_on(
    http_server: HttpServer, http: MakeHttp, parent: str | None
) -> None:
    http(http_server.url).invoke(make_call(traceparent=parent, tracestate="a=1\r\nX-Evil: 1"))
    assert not {"traceparent", "tracestate", "x-evil"} & {name.lower() for name in http_server.requests[0].headers}


def test_calls_share_a_connection(http_server: HttpServer, http: MakeHttp) -> None:
    action = http(http_server.url)
    for _ in range(5):
        action.invoke(make_call())
    assert http_server.connections == 1


def test_calls_run_in_parallel(http_server: HttpServer, http: MakeHttp) -> None:
    action = http(http_server.url)
    with ThreadPoolExecutor(8) as workers:
        results = list(workers.map(lambda number: action.invoke(make_call(id=f"a-{number}")), range(64)))
    assert results == ["200"] * 64
    assert {request.headers["Idempotency-Key"] for request in http_server.requests} == {f"a-{n}" for n in range(64)}


# --- what the answer means ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_success(http_server: HttpServer, http: MakeHttp, status: int) -> None:
    http_server.reply = Reply(status)
    assert http(http_server.url).invoke(make_call()) == str(status)


def test_a_policy_says_which_statuses_are_a_success_and_no_others_are(http_server: HttpServer) -> None:
    policy = Policy.model_validate({"status": {"allow": [201, 409, 302]}})
    action = HttpAction(HttpSpec(url=http_server.url), msgspec.structs.replace(CONTEXT, policy=policy))
    for status in (201, 409, 302):
        http_server.reply = Reply(status)
        assert action.invoke(make_call()) == str(status)
    for status, retriable in ((200, False), (404, False), (503, True)):
        http_server.reply = Reply(status)
        assert _failure(action).retriable == retriable
    http_server.reply = Reply(200)
    assert str(_failure(action)) == "the server answered 200 OK, which the policy does not allow"
    action.close()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_a_busy_or_broken_server_is_asked_again(http_server: HttpServer, http: MakeHttp, status: int) -> None:
    http_server.reply = Reply(status)
    error = _failure(http(http_server.url))
    assert (error.retriable, error.sent, error.status, error.retry_after) == (True, True, str(status), None)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 403, 404, 409, 410, 422, 451])
def test_any_other_answer_is_final(http_server: HttpServer, http: MakeHttp, status: int) -> None:
    http_server.reply = Reply(status, {"Retry-After": "5"})
    error = _failure(http(http_server.url))
    assert (error.retriable, error.sent, error.status, error.retry_after) == (False, True, str(status), None)


def test_a_redirect_is_not_followed(http_server: HttpServer, http: MakeHttp) -> None:
    http_server.reply = Reply(302, {"Location": http_server.url})
    assert str(_failure(http(http_server.url))) == "the server answered 302 Found; redirects are not followed"
    assert len(http_server.requests) == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (formatdate(NOW + 30, usegmt=True), 30),
        (formatdate(NOW - 30, usegmt=True), 0),
        ("soon", None),
        ("-5", None),
        ("9" * 400, None),
        ("Fri, 99 Foo 2026 99:99:99 GMT", None),
    ],
)
def test_retry_after_is_honoured_in_both_forms(
    http_server: HttpServer, http: MakeHttp, header: str, seconds: float | None
) -> None:
    http_server.reply = Reply(503, {"Retry-After": header})
    assert _failure(http(http_server.url)).retry_after == seconds


def test_the_error_quotes_the_beginning_of_the_answer_in_one_line(http_server: HttpServer, http: MakeHttp) -> None:
    http_server.reply = Reply(500, body=b"out of\n  paper \x1b[31m\xff" + b"!" * 1000)
    message = str(_failure(http(http_server.url)))
    assert message.startswith("the server answered 500 Internal Server Error: out of paper [31m\ufffd!!!")
    assert len(message) < 260


# --- servers that misbehave -----------------------------------------------------------------------------------------


def test_an_endless_answer_is_cut_off(raw_server: StartRaw, http: MakeHttp) -> None:
    hung_up = threading.Event()

    def flood(connection: socket.socket) -> None:
        read_request(connection)
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"x" * MAX_BODY)
        except OSError:
            hung_up.set()

    assert http(raw_server(flood).url).invoke(make_call()) == "200"
    assert hung_up.wait(10)


def test_a_server_that_never_answers_costs_one_timeout(raw_server: StartRaw, http: MakeHttp) -> None:
    released = threading.Event()

    def hang(connection: socket.socket) -> None:
        read_request(connection)
        released.wait(10)

    error = _failure(http(raw_server(hang).url, timeout=1))
    released.set()
    assert str(error) == "no complete answer within 1 s"
    assert (error.retriable, error.sent) == (True, True)


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_a_server_that_drips_its_answer_costs_one_timeout_too(
    raw_server: StartRaw, http: MakeHttp, beginning: bytes
) -> None:
    released = threading.Event()

    def drip(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(beginning)
        while not released.wait(0.05):
            connection.sendall(b"x")

    begin = time.monotonic()
    error = _failure(http(raw_server(drip).url, timeout=1))
    released.set()
    assert str(error) == "no complete answer within 1 s"
    assert (error.retriable, error.sent) == (True, True)
    assert time.monotonic() - begin < 5


def test_the_time_left_shrinks_with_every_read() -> None:
    """Otherwise a server that drips and then falls silent would get a whole time-out for the silence."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(100)
        reader = DeadlineReader(ours.makefile("rb", buffering=0), ours)
        theirs.sendall(b"x")
        assert reader.read(1) == b"x"
        left = ours.gettimeout()
        assert left is not None
        assert left < 100
        reader.close()


def test_nothing_is_read_after_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(1e-9)
        reader = DeadlineReader(ours.makefile("rb", buffering=0), ours)
        theirs.sendall(b"x")
        with pytest.raises(TimeoutError):
            reader.read(1)
        reader.close()


@pytest.mark.parametrize("answer", [b"", b"HT", b"HTTP/1.1 20", b"GARBAGE\r\n\r\n"])
def test_a_connection_that_breaks_before_the_status_is_known_may_have_delivered(
    raw_server: StartRaw, http: MakeHttp, answer: bytes
) -> None:
    def break_off(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    error = _failure(http(raw_server(break_off).url))
    assert str(error).startswith("the connection broke: ")
    assert (error.retriable, error.sent) == (True, True)


@pytest.mark.parametrize("rest", [b"", b"\r\nContent-Le", b"\r\nContent-Length: 100\r\n\r\nonly this"])
def test_what_breaks_off_behind_the_status_does_not_change_the_outcome(
    raw_server: StartRaw, http: MakeHttp, rest: bytes
) -> None:
    def break_off(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 201 Created" + rest)

    assert http(raw_server(break_off).url).invoke(make_call()) == "201"


def _unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_a_refused_connection_has_sent_nothing(http: MakeHttp) -> None:
    error = _failure(http(f"http://127.0.0.1:{_unused_port()}/"))
    assert str(error) == "no connection: Connection refused"
    assert (error.retriable, error.sent) == (True, False)


def test_an_unknown_host_has_been_sent_nothing(http: MakeHttp) -> None:
    error = _failure(http("http://nothing.invalid/"))
    assert str(error) == "the host name cannot be resolved"
    assert (error.retriable, error.sent) == (True, False)


def test_a_host_that_does_not_accept_connections_has_been_sent_nothing(http: MakeHttp) -> None:
    waiting: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        try:
            for _ in range(3):  # the queue of a listener that never accepts is full after one or two
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(listener.getsockname())
            error = _failure(http(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout=1))
        finally:
            for client in waiting:
                client.close()
    assert str(error) == "no connection within 1 s"
    assert (error.retriable, error.sent) == (True, False)


def _answer(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(raw_server: StartRaw, http: MakeHttp) -> None:
    closed = threading.Semaphore(0)

    def answer_once(connection: socket.socket) -> None:
        _answer(connection)
        connection.shutdown(socket.SHUT_RDWR)
        closed.release()

    action = http(raw_server(answer_once).url)
    for _ in range(3):
        assert action.invoke(make_call()) == "200"
        assert closed.acquire(timeout=10)


def test_a_kept_connection_that_closes_under_the_next_request_may_have_delivered_it(
    raw_server: StartRaw, http: MakeHttp
) -> None:
    def answer_then_swallow(connection: socket.socket) -> None:
        _answer(connection)
        read_request(connection)

    action = http(raw_server(answer_then_swallow).url)
    action.invoke(make_call())
    error = _failure(action)
    assert (error.retriable, error.sent) == (True, True)


def test_whether_something_was_sent_is_known_per_call(raw_server: StartRaw, http: MakeHttp) -> None:
    def swallow(connection: socket.socket) -> None:
        read_request(connection)

    sent, refused = http(raw_server(swallow).url), http(f"http://127.0.0.1:{_unused_port()}/")
    assert [_failure(action).sent for action in (sent, refused, sent, refused)] == [True, False, True, False]


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_a_server_with_a_trusted_certificate_is_called(
    https_server: HttpServer, certificate: Certificate, http: MakeHttp
) -> None:
    action = http(https_server.url, tls={"caCertFile": str(certificate.cert)})
    assert [action.invoke(make_call()) for _ in range(2)] == ["200", "200"]
    assert https_server.connections == 1


def test_a_server_with_an_unknown_certificate_is_sent_nothing(https_server: HttpServer, http: MakeHttp) -> None:
    error = _failure(http(https_server.url))
    assert str(error).startswith("TLS: ")
    assert "certificate verify failed" in str(error)
    assert (error.retriable, error.sent) == (True, False)
    assert https_server.requests == []


def test_a_certificate_for_another_name_is_not_accepted(
    foreign_certificate: Certificate, start_https: Callable[[ssl.SSLContext], HttpServer], http: MakeHttp
) -> None:
    server = start_https(foreign_certificate.server_context())
    error = _failure(http(server.url, tls={"caCertFile": str(foreign_certificate.cert)}))
    assert "Hostname mismatch" in str(error)
    assert not error.sent
    assert server.requests == []


def test_verification_can_be_switched_off(https_server: HttpServer, http: MakeHttp) -> None:
    assert http(https_server.url, tls={"insecureSkipVerify": True}).invoke(make_call()) == "200"


def test_a_server_that_speaks_no_tls_is_sent_nothing(http_server: HttpServer, http: MakeHttp) -> None:
    error = _failure(http(http_server.url.replace("http:", "https:")))
    assert str(error).startswith("TLS: ")
    assert not error.sent


@pytest.fixture
def strict_server(certificate: Certificate, start_https: Callable[[ssl.SSLContext], HttpServer]) -> HttpServer:
    """Asks its clients for a certificate."""
    context = certificate.server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate.cert)
    return start_https(context)


def test_a_client_certificate_is_presented(strict_server: HttpServer, certificate: Certificate, http: MakeHttp) -> None:
    ours = {"clientCertFile": str(certificate.cert), "clientKeyFile": str(certificate.key)}
    assert http(strict_server.url, tls={"caCertFile": str(certificate.cert), **ours}).invoke(make_call()) == "200"


def test_a_missing_client_certificate_is_noticed_only_after_sending(
    strict_server: HttpServer, certificate: Certificate, http: MakeHttp
) -> None:
    """In TLS 1.3 the server's refusal comes after the handshake, so the request may have arrived."""
    error = _failure(http(strict_server.url, tls={"caCertFile": str(certificate.cert)}))
    assert (error.retriable, error.sent) == (True, True)
    assert strict_server.requests == []


@pytest.mark.parametrize("option", ["caCertFile", "clientCertFile"])
def test_a_tls_file_that_cannot_be_used_is_named(tmp_path: Path, option: str) -> None:
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.write_text("hello")
    for file, reason in ((missing, "No such file or directory"), (garbage, "it is not a usable PEM file")):
        spec = HttpSpec.model_validate({"url": "https://h/", "tls": {option: str(file)}})
        with pytest.raises(ConfigError) as caught:
            HttpAction(spec, CONTEXT)
        assert str(caught.value) == f"the TLS file `{file}` cannot be used: {reason}"


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h",
        "ftp://h/",
        "http://",
        "http:///x",
        "http://h:99999/",
        "http://h:x/",
        "http://h/a b",
        "http://h/ä",
        "http://h/\r\nX: y",
        "http://[::1/",
        "http://a..b/",
    ],
)
def test_an_address_must_be_complete(url: str) -> None:
    with pytest.raises(ValidationError, match="must be a complete http:// or https:// address"):
        HttpSpec(url=url)


def test_an_address_must_not_carry_a_password() -> None:
    with pytest.raises(ValidationError, match="must not contain a user name or password"):
        HttpSpec(url="http://user:secret@h/")


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"X-A": "a\nb"}, "contains a line break"),
        ({"X-A": "a\rb"}, "contains a line break"),
        ({"X-A": "ü"}, "contains a line break or another character"),
        ({"X A": "a"}, "cannot be the name of a header"),
        ({"X:A": "a"}, "cannot be the name of a header"),
        ({"": "a"}, "cannot be the name of a header"),
        ({"idempotency-key": "a"}, "is set for every call"),
        ({"Content-Length": "0"}, "is set for every call"),
        ({"X-A": "a", "x-a": "b"}, "is set twice"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused(headers: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HttpSpec.model_validate({"url": "http://h/", "headers": headers})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"url": "http://h/", "tls": {}}, "`tls` does nothing for an http:// address"),
        ({"url": "https://h/", "tls": {"clientKeyFile": "k"}}, "`clientKeyFile` needs `clientCertFile`"),
        ({"url": "http://h/", "timeout": 0}, "greater than or equal to 1"),
        ({"url": "http://h/", "method": "TRACE"}, "Input should be 'GET', 'POST', 'PUT', 'PATCH' or 'DELETE'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HttpSpec.model_validate(spec)
