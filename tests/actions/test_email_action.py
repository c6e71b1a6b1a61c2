"""The `email` action against real SMTP servers: what arrives, and what is made of whatever goes wrong."""

from __future__ import annotations

import email
import socket
from asyncio.base_events import Server
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.policy import default
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from pydantic import ValidationError

from eventbus.errors import ConfigError
from eventbus.events import Event
from sensors.actions import email as email_action
from sensors.actions import make_action
from sensors.actions.email import EmailAction, EmailSpec
from tests.actions.conftest import CONTEXT, Certificate, RawServer, failure_of, make_call, parameter, unused_port

CANARY = "canary-6f1d"
StartRaw = Callable[[Callable[[socket.socket], None]], RawServer]
StartSmtp = Callable[..., "Postbox"]
MakeSecret = Callable[..., dict[str, str]]


class Postbox:
    """Takes mail for everybody but those who are not there, and remembers it."""

    def __init__(self, **server: Any) -> None:
        self.received: list[tuple[list[str], EmailMessage]] = []
        self.logged_in: list[bool] = []
        self.answer = "250 OK"
        settings = {"authenticator": self._authenticate, "auth_require_tls": False, **server}
        self._controller = _Controller(self, hostname="127.0.0.1", port=0, **settings)
        self._controller.start()
        self.port = self._controller.port

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        if address.startswith("busy@"):
            return "450 mailbox busy"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        self.logged_in.append(session.authenticated is True)
        self.received.append((envelope.rcpt_tos, email.message_from_bytes(envelope.content, policy=default)))
        return self.answer

    def _authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _how: str, who: Any) -> AuthResult:
        known = isinstance(who, LoginPassword) and (who.login, who.password) == (b"jane", CANARY.encode())
        return AuthResult(success=known, handled=False, message=None if known else f"535 not {who.password.decode()}")

    def close(self) -> None:
        self._controller.stop()


class _Controller(Controller):
    def _trigger_server(self) -> None:
        """Only a connection, no TLS: aiosmtpd's own would have to trust the certificate."""
        assert isinstance(self.server, Server)
        self.port = self.server.sockets[0].getsockname()[1]
        socket.create_connection((self.hostname, self.port)).close()


@pytest.fixture
def start_smtp() -> Iterator[StartSmtp]:
    boxes: list[Postbox] = []

    def start(**server: Any) -> Postbox:
        boxes.append(Postbox(**server))
        return boxes[-1]

    yield start
    for box in boxes:
        box.close()


@pytest.fixture
def postbox(start_smtp: StartSmtp) -> Postbox:
    return start_smtp()


def _spec(port: int, **changes: Any) -> EmailSpec:
    fields = {
        "host": "localhost",
        "port": port,
        "from": "Bus <bus@example.org>",
        "to": ["ann@example.org", "bob@example.org"],
        "subject": "Paid",
        "body": "It is paid.\n",
    }
    return EmailSpec.model_validate({**fields, **changes})


def _action(port: int, **changes: Any) -> EmailAction:
    return EmailAction(_spec(port, **changes), CONTEXT)


def _text(message: EmailMessage) -> str:
    text: str = message.get_content()
    return text.replace("\r\n", "\n")


# --- what arrives ---------------------------------------------------------------------------------------------------


def test_a_message_goes_to_all_recipients(postbox: Postbox) -> None:
    action = make_action("email", _spec(postbox.port), CONTEXT)
    assert isinstance(action, EmailAction)
    assert action.invoke(make_call()) == "250"
    action.close()
    [(recipients, message)] = postbox.received
    assert recipients == ["ann@example.org", "bob@example.org"]
    assert (message["From"], message["To"]) == ("Bus <bus@example.org>", "ann@example.org, bob@example.org")
    assert (message["Subject"], _text(message)) == ("Paid", "It is paid.\n")


def test_the_message_id_is_the_same_at_every_attempt(postbox: Postbox) -> None:
    action = _action(postbox.port)
    action.invoke(make_call(attempt=1))
    action.invoke(make_call(attempt=2))
    assert [message["Message-ID"] for _, message in postbox.received] == ["<action-1@example.org>"] * 2


def test_parameters_are_applied(postbox: Postbox) -> None:
    parameters = [
        parameter("to.-1", "who"),
        {**parameter("subject"), "operation": "append"},
        {"src": {"dependencyName": "paid", "dataTemplate": "Hi {{.Input.who}},\n.\nBye"}, "dest": "body"},
    ]
    event = Event.new("shop", "paid", {"total": 12, "who": "eve@example.org"})
    _action(postbox.port, to=[], body="", parameters=parameters).invoke(make_call(events={"paid": event}))
    [(recipients, message)] = postbox.received
    assert recipients == ["eve@example.org"]
    assert message["Subject"] == "Paid12"
    assert _text(message) == "Hi eve@example.org,\n.\nBye\n"


def test_any_text_arrives_as_it_was(postbox: Postbox) -> None:
    _action(postbox.port, subject="Größe ✓ " + "x" * 200, body="Grüße\n" + "é" * 2000).invoke(make_call())
    [(_, message)] = postbox.received
    assert message["Subject"] == "Größe ✓ " + "x" * 200
    assert _text(message) == "Grüße\n" + "é" * 2000 + "\n"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("subject", "x\r\nBcc: eve@example.org", "`subject` must be a single line"),
        ("to.0", "a@b.example\r\nBcc: c@d.example", "must be an e-mail address"),
        ("to.0", "a@b.example, c@d.example", "must be an e-mail address"),
        ("from", "a@b.example>\r\nX: <a@b.example", "`from` must be an e-mail address"),
        ("body", "", "`body` would be empty"),
    ],
)
def test_an_event_cannot_smuggle_anything_in(postbox: Postbox, field: str, value: str, reason: str) -> None:
    action = _action(postbox.port, parameters=[parameter(field, "x")])
    error = failure_of(action, events={"paid": Event.new("shop", "paid", {"x": value})})
    assert reason in str(error)
    assert (error.retriable, error.sent) == (False, False)
    assert postbox.received == []


# --- secrets and TLS ------------------------------------------------------------------------------------------------


def test_a_password_opens_the_door(start_smtp: StartSmtp, secret: MakeSecret) -> None:
    box = start_smtp()
    action = _action(box.port, username="jane", smtpPassword=secret(CANARY))
    assert action.invoke(make_call()) == "250"
    assert box.logged_in == [True]
    assert CANARY not in repr(box.received[0][1].as_string())


def test_a_wrong_password_is_final_and_not_shown_even_if_the_server_repeats_it(
    start_smtp: StartSmtp, secret: MakeSecret
) -> None:
    box = start_smtp()
    error = failure_of(_action(box.port, username="jane", smtpPassword=secret("wrong-7c2e")))
    assert str(error) == "the server answered 535: the user name or password is not accepted"
    assert (error.retriable, error.sent, error.status) == (False, False, "535")
    assert box.received == []


def test_a_changed_password_needs_no_restart(start_smtp: StartSmtp, secret: MakeSecret) -> None:
    box = start_smtp()
    action = _action(box.port, username="jane", smtpPassword=secret("old"))
    failure_of(action)
    secret(CANARY)
    assert action.invoke(make_call()) == "250"


def test_a_secret_that_is_not_there_is_told_at_once(secret: MakeSecret) -> None:
    with pytest.raises(ConfigError, match="the key `gone` of the secret `vault` is not there"):
        _action(25, username="jane", smtpPassword={**secret("x"), "key": "gone"})


def test_a_password_that_smtp_cannot_carry_is_final(start_smtp: StartSmtp, secret: MakeSecret) -> None:
    error = failure_of(_action(start_smtp().port, username="jane", smtpPassword=secret("pässword")))
    assert (str(error), error.retriable) == ("SMTP servers understand only user names and passwords in ASCII", False)


def test_an_event_cannot_choose_the_server() -> None:
    assert not any(EmailSpec.can_patch(field) for field in ("host", "port"))


INJECTED = "=?utf-8?q?hi=0D=0ABcc:_x@y.example=0D=0A=0D=0Aevil?="


@pytest.mark.parametrize(("dest", "value"), [("subject", INJECTED), ("from", f"{INJECTED} <a@b.example>")])
def test_an_event_brings_no_headers_of_its_own(postbox: Postbox, dest: str, value: str) -> None:
    """Found in a review: Python decodes what looks encoded, and writes the line breaks that it finds."""
    action = _action(postbox.port, parameters=[parameter(dest, "x")])
    error = failure_of(action, events={"paid": Event.new("s", "n", {"x": value})})
    assert (error.retriable, error.sent) == (False, False)
    assert postbox.received == []


def test_a_message_that_python_cannot_make_is_not_sent(postbox: Postbox) -> None:
    action = _action(postbox.port, parameters=[parameter("from", "x")])
    error = failure_of(action, events={"paid": Event.new("s", "n", {"x": ".a <a@b.example>"})})
    assert (error.retriable, error.sent) == (False, False)


def test_a_password_is_not_sent_in_the_clear(
    postbox: Postbox, secret: MakeSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(email_action, "_LOCAL", frozenset())
    error = failure_of(_action(postbox.port, username="jane", smtpPassword=secret(CANARY)))
    assert str(error) == "the server offers no TLS, and the password must not be readable on its way"
    assert (error.retriable, error.sent) == (False, False)


def test_tls_is_used_where_the_server_offers_it(
    start_smtp: StartSmtp, secret: MakeSecret, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    monkeypatch.setattr(email_action, "_LOCAL", frozenset())
    box = start_smtp(tls_context=certificate.server_context(), auth_require_tls=True)
    action = _action(box.port, username="jane", smtpPassword=secret(CANARY))
    assert action.invoke(make_call()) == "250"
    assert box.logged_in == [True]


def test_tls_from_the_start(start_smtp: StartSmtp, certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    box = start_smtp(ssl_context=certificate.server_context())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    monkeypatch.setattr(email_action, "_TLS_FROM_THE_START", box.port)
    assert _action(box.port).invoke(make_call()) == "250"


@pytest.mark.parametrize("how", ["tls_context", "ssl_context"])
def test_a_server_that_cannot_be_trusted_gets_nothing(
    start_smtp: StartSmtp, certificate: Certificate, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    box = start_smtp(**{how: certificate.server_context()})
    if how == "ssl_context":
        monkeypatch.setattr(email_action, "_TLS_FROM_THE_START", box.port)
    error = failure_of(_action(box.port))
    assert str(error) == "TLS: CERTIFICATE_VERIFY_FAILED"
    assert (error.retriable, error.sent) == (True, False)
    assert box.received == []


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("who", "code", "retriable"), [("nobody", 550, False), ("busy", 450, True)])
def test_a_refused_recipient_means_that_nobody_gets_it(postbox: Postbox, who: str, code: int, retriable: bool) -> None:
    error = failure_of(_action(postbox.port, to=["ann@example.org", f"{who}@example.org"]))
    assert str(error).startswith(f"the server answered {code}: ")
    assert (error.retriable, error.sent, error.status) == (retriable, False, str(code))
    assert postbox.received == []


@pytest.mark.parametrize(("answer", "retriable"), [("451 try later", True), ("554 spam", False)])
def test_a_refused_message_is_nowhere(postbox: Postbox, answer: str, retriable: bool) -> None:
    postbox.answer = answer
    error = failure_of(_action(postbox.port))
    assert str(error) == f"the server answered {answer.replace(' ', ': ', 1)}"
    assert (error.retriable, error.sent) == (retriable, False)


def test_a_server_that_is_down_got_nothing() -> None:
    error = failure_of(_action(unused_port()))
    assert str(error) == "no connection: Connection refused"
    assert (error.retriable, error.sent) == (True, False)


def test_a_host_that_does_not_exist() -> None:
    error = failure_of(_action(25, host="no-such-host.invalid"))
    assert str(error) == "the host name cannot be resolved"
    assert (error.retriable, error.sent) == (True, False)


def _converse(connection: socket.socket, until: bytes) -> None:
    """Agrees to everything until the client says something; then it is up to the caller."""
    reader = connection.makefile("rb")
    connection.sendall(b"220 here\r\n")
    for line in reader:
        if line.upper().startswith(until):
            break
        connection.sendall(b"250 fine\r\n")
    reader.close()


def _port(server: RawServer) -> int:
    return int(server.url.rpartition(":")[2].partition("/")[0])


@pytest.mark.parametrize(("until", "sent"), [(b"EHLO", False), (b"RCPT", False), (b"DATA", True)])
def test_a_connection_that_breaks(raw_server: StartRaw, until: bytes, sent: bool) -> None:
    server = raw_server(lambda connection: _converse(connection, until))
    error = failure_of(_action(_port(server)))
    assert str(error) == "the connection broke"
    assert (error.retriable, error.sent) == (True, sent)


@pytest.mark.parametrize(("until", "sent"), [(b"MAIL", False), (b"DATA", True)])
def test_a_server_that_drips_its_answer_cannot_hold_us(
    raw_server: StartRaw, monkeypatch: pytest.MonkeyPatch, until: bytes, sent: bool
) -> None:
    def drip(connection: socket.socket) -> None:
        _converse(connection, until)
        connection.settimeout(0.05)
        while True:
            connection.sendall(b"2")
            try:
                if not connection.recv(65536):
                    return
            except TimeoutError:
                continue

    monkeypatch.setattr(email_action, "TIMEOUT_SECONDS", 0.4)
    error = failure_of(_action(_port(raw_server(drip))))
    assert str(error) == "no complete answer within 0.4 s"
    assert (error.retriable, error.sent) == (True, sent)


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"port": 0}, "greater than or equal to 1"),
        ({"port": 70000}, "less than or equal to 65535"),
        ({"host": "smtp.example.org:25"}, "must be a host name, without a port"),
        ({"to": ["ann"]}, "must be an e-mail address"),
        ({"from": "ann"}, "must be an e-mail address"),
        ({"smtpPassword": {"name": "a", "key": "b"}}, "`smtpPassword` needs `username`"),
        ({"parameters": [parameter("smtpPassword.name")]}, "`dest` cannot be `smtpPassword.name`"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _spec(**{"port": 25, **fields})
