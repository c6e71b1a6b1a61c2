"""The `email` action: one message per action, handed to an SMTP server.

All recipients get the message or none does: it is given up before anything was sent when the server refuses one.
"""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
from collections.abc import Iterator
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, parseaddr
from io import BufferedReader
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, StrictInt, create_model

from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.deadline import DeadlineReader
from sensors.actions.patched import Patch, PatchableSpec
from sensors.actions.replies import excerpt
from sensors.actions.tls import Tls, TlsSecrets
from sensors.actions.values import reading_secrets
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Text

TIMEOUT_SECONDS = 30.0
_TLS_FROM_THE_START = 465
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))


# --- manifest -------------------------------------------------------------------------------------------------------


def _valid_address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError("must be an e-mail address such as `jane@example.org`")
    return text


def _valid_sender(text: str) -> str:
    if text and not (text.isprintable() and "=?" not in text and _ADDRESS.fullmatch(parseaddr(text)[1])):
        raise ValueError("must be an e-mail address such as `jane@example.org` or `Jane <jane@example.org>`")
    return text


def _valid_subject(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be a single line")
    if "=?" in text:  # once decoded it may be anything, lines of its own among that
        raise ValueError("must not contain an encoded word (`=?…?=`): write it as it is to be read")
    return text


def _valid_host(text: str) -> str:
    if text and not _HOST.fullmatch(text):
        raise ValueError("must be a host name, without a port")
    return text


class EmailSpecBase(PatchableSpec):
    """Send an e-mail. The action's id is in its `Message-ID`."""

    patchable: ClassVar[tuple[str, ...]] = ("to", "to.*", "from", "subject", "body")
    needed: ClassVar[tuple[tuple[str, ...], ...]] = (("to",), ("from",), ("subject",), ("body",))

    host: Annotated[Text, AfterValidator(_valid_host), Field(min_length=1)]
    """The SMTP server."""
    port: Annotated[StrictInt, Field(ge=1, le=65535)]
    """Its port. 465: TLS from the start; any other: TLS as soon as the server offers it."""
    username: Text = ""
    """Who we are, where the server wants to know; it needs `smtpPassword`."""
    smtpPassword: SecretKeySelector | None = None
    """The secret with the password. It is sent over TLS only, except to this machine itself."""
    to: tuple[Annotated[Text, AfterValidator(_valid_address)], ...] = ()
    """The recipients. All of them get the same message, or none does."""
    subject: Annotated[Text, AfterValidator(_valid_subject)] = ""
    """The message's subject."""
    body: Text = ""
    """The message's text."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        if get(data, "smtpPassword") is not None and not get(data, "username"):
            yield Flaw(("smtpPassword",), "`smtpPassword` needs `username`", about_key=True)

    @property
    def sender(self) -> str:
        text: str = getattr(self, "from")
        return text


if TYPE_CHECKING:
    EmailSpec = EmailSpecBase
else:  # `from` is a word of Python's own
    EmailSpec = create_model(
        "EmailSpec",
        __base__=EmailSpecBase,
        __doc__=EmailSpecBase.__doc__,
        **{"from": (Annotated[Text, AfterValidator(_valid_sender)], "")},
    )


# --- action ---------------------------------------------------------------------------------------------------------


class EmailAction:
    """Opens a connection for every message. Its `Message-ID` is the action's id, so repetitions are recognisable."""

    Spec: ClassVar[type[SpecModel]] = EmailSpec

    def __init__(self, spec: EmailSpec, _context: ActionContext) -> None:
        self._spec = spec
        self._patch = Patch(spec)
        _password(spec)  # a secret that is not there is told now

    def invoke(self, call: ActionCall) -> str:
        spec = self._patch.spec(call)
        message = _message(spec, call)
        with reading_secrets():
            password = _password(spec)
        return _Delivery(spec, password).run(message)

    def close(self) -> None:
        pass


def _password(spec: EmailSpec) -> Secret | None:
    return None if spec.smtpPassword is None else spec.smtpPassword.read()


def _message(spec: EmailSpec, call: ActionCall) -> bytes:
    message = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
    domain = parseaddr(spec.sender)[1].rpartition("@")[2]
    try:
        message["From"] = spec.sender
        message["To"] = ", ".join(spec.to)
        message["Subject"] = spec.subject
        message["Date"] = formatdate()
        message["Message-ID"] = f"<{call.id}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(spec.body)
        return message.as_bytes()
    except Exception as error:  # of any kind, as Python's package is; nothing was sent yet
        raise ActionError(f"the message cannot be made: {error}", retriable=False, sent=False) from None


class _Delivery:
    """One message on its way, and how far it has come: nothing is sent before the server has agreed to everybody."""

    def __init__(self, spec: EmailSpec, password: Secret | None) -> None:
        self._spec = spec
        self._password = password
        self._sent = False

    def run(self, message: bytes) -> str:
        try:
            server = self._connect()
            try:
                self._introduce(server)
                return self._send(server, message)
            finally:
                server.close()
        except ssl.SSLError as error:
            raise self._broken(f"TLS: {error.reason or error}") from None
        except TimeoutError:
            raise self._broken(f"no connection within {TIMEOUT_SECONDS:g} s") from None
        except smtplib.SMTPResponseException as error:
            raise self._refusal(error.smtp_code, error.smtp_error) from None
        except smtplib.SMTPServerDisconnected as error:
            late = isinstance(error.__context__, TimeoutError)
            reason = f"no complete answer within {TIMEOUT_SECONDS:g} s" if late else "the connection broke"
            raise self._broken(reason) from None
        except UnicodeError:
            reason = "SMTP servers understand only user names and passwords in ASCII"
            raise ActionError(reason, retriable=False, sent=False) from None
        except socket.gaierror:
            raise self._broken("the host name cannot be resolved") from None
        except smtplib.SMTPException as error:
            raise ActionError(f"SMTP: {self._shown(str(error))}", retriable=False, sent=self._sent) from None
        except OSError as error:
            raise self._broken(f"no connection: {error.strerror or error}") from None

    def _connect(self) -> smtplib.SMTP:
        host, port = self._spec.host, self._spec.port
        own_name = socket.gethostname()  # else smtplib asks name servers who we are
        if port == _TLS_FROM_THE_START:
            return _SmtpOverTls(host, port, own_name, timeout=TIMEOUT_SECONDS, context=_context())
        return _Smtp(host, port, own_name, timeout=TIMEOUT_SECONDS)

    def _introduce(self, server: smtplib.SMTP) -> None:
        server.ehlo_or_helo_if_needed()
        if self._spec.port != _TLS_FROM_THE_START and server.has_extn("starttls"):
            _expect(server.starttls(context=_context()), 220)
            server.ehlo_or_helo_if_needed()
        if self._password is None:
            return
        if not isinstance(server.sock, ssl.SSLSocket) and self._spec.host not in _LOCAL:
            message = "the server offers no TLS, and the password must not be readable on its way"
            raise ActionError(message, retriable=False, sent=False)
        try:
            server.login(self._spec.username, self._password.reveal())
        except smtplib.SMTPResponseException as error:  # what it says may repeat the password, encoded in some way
            raise smtplib.SMTPResponseException(error.smtp_code, "the user name or password is not accepted") from None

    def _send(self, server: smtplib.SMTP, message: bytes) -> str:
        _expect(server.mail(parseaddr(self._spec.sender)[1]), 250)
        for recipient in self._spec.to:
            _expect(server.rcpt(recipient), 250, 251)
        self._sent = True
        try:
            _expect(server.data(message), 250)
        except smtplib.SMTPResponseException as error:
            self._sent = not 400 <= error.smtp_code < 600  # a message that is refused is nowhere
            raise
        return "250"

    def _refusal(self, code: int, reply: bytes | str) -> ActionError:
        return ActionError(
            f"the server answered {code}: {self._shown(reply)}",
            retriable=400 <= code < 500,
            sent=self._sent,
            status=str(code),
        )

    def _broken(self, message: str) -> ActionError:
        return ActionError(message, retriable=True, sent=self._sent)

    def _shown(self, reply: bytes | str) -> str:
        return excerpt(reply, () if self._password is None else (self._password,))


def _context() -> ssl.SSLContext:
    return Tls().context(TlsSecrets())


def _expect(answer: tuple[int, bytes], *codes: int) -> None:
    if answer[0] not in codes:
        raise smtplib.SMTPResponseException(*answer)


class _Smtp(smtplib.SMTP):
    """Reads all answers until one deadline."""

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            raw: Any = self.sock.makefile("rb", buffering=0)
            self.file = BufferedReader(DeadlineReader(raw, self.sock))
        return super().getreply()


class _SmtpOverTls(_Smtp, smtplib.SMTP_SSL):
    pass
