"""Where tokens for Kafka come from. Secrets are read anew for every token."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated
from urllib.parse import quote_plus, urlencode

import msgspec
from pydantic import AfterValidator, Field

from eventbus.clock import SystemClock
from eventbus.errors import ConfigError
from eventbus.kafka.tokens import NoToken, Token
from sensors.actions.base import ActionError
from sensors.actions.replies import excerpt
from sensors.actions.tls import Tls
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.base import SpecModel
from sensors.spec.fields import StringMap, Text

_SECONDS = 5.0
"""Until a provider's answer counts as missing. A client waits for its first token for ten seconds."""
_PASSING = frozenset({408, 425, 429})


def _https(text: str) -> str:
    if not text.startswith("https://"):
        raise ValueError("must begin with `https://`: the client's secret is sent there")
    return text


class _Issued(msgspec.Struct):
    access_token: str
    expires_in: Annotated[int, msgspec.Meta(gt=0)]


class _Refused(msgspec.Struct):
    error: Annotated[str, msgspec.Meta(pattern="^[a-z_]{1,40}$")]
    """The standard's own words. What a provider says beside them might repeat what it was sent."""


class OAuth(SpecModel):
    """A token that an identity provider issues for client credentials (OIDC)."""

    tokenEndpoint: Annotated[Text, AfterValidator(_https)]
    """Where the provider issues tokens."""
    clientIdSecret: SecretKeySelector
    """The secret with the client's name."""
    clientSecretSecret: SecretKeySelector
    """The secret with the client's secret."""
    scope: Text | None = None
    """What the token is to be good for."""
    extensions: StringMap = Field(default={})
    """What brokers want to be told beside the token, such as `logicalCluster` of Confluent Cloud."""
    tls: Tls | None = None
    """How to trust the provider, where the system's authorities are not enough."""

    def credentials(self) -> tuple[Secret, Secret]:
        """Raises `ConfigError` when a secret is not there."""
        return self.clientIdSecret.read(), self.clientSecretSecret.read()

    def token(self) -> Token:
        """Raises `NoToken`."""
        from sensors.actions.http_client import HttpClient  # noqa: PLC0415 - only who calls servers pays for urllib3

        tls = self.tls or Tls()
        try:
            client, secret = (quote_plus(each.reveal()) for each in self.credentials())
            http = HttpClient(_SECONDS, tls.context(tls.secrets()))
        except ConfigError as error:
            raise NoToken(str(error), passing=False) from None
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {b64encode(f'{client}:{secret}'.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        wanted = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        began_ms = SystemClock().now_ms()
        try:
            answer = http.request("POST", self.tokenEndpoint, headers, urlencode(wanted).encode())
        except ActionError as error:
            raise self._out_of_reach(str(error)) from None
        finally:
            http.close()
        issued = self._issued(answer.status, answer.body)
        return Token(issued.access_token, began_ms + 1000 * issued.expires_in, self.extensions)

    def _out_of_reach(self, reason: str) -> NoToken:
        untrusted = "certificate verify failed" in reason
        advice = ". Name its authority in `oauth.tls` (docs/connection.md)." if untrusted else ""
        return NoToken(f"{self.tokenEndpoint} issues no token: {reason}{advice}", passing=not untrusted)

    def _issued(self, status: int, body: bytes) -> _Issued:
        if status != 200:
            raise NoToken(self._refusal(status, body), passing=status >= 500 or status in _PASSING)
        try:
            return msgspec.json.decode(body, type=_Issued)
        except (msgspec.DecodeError, UnicodeDecodeError):
            reason = f"{self.tokenEndpoint} answers without `access_token` and `expires_in`: is this the right URL?"
            raise NoToken(reason, passing=False) from None

    def _refusal(self, status: int, body: bytes) -> str:
        try:
            said = msgspec.json.decode(body, type=_Refused).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            return f"{self.tokenEndpoint} issues no token: it answers with status {status}"
        advice = "Check the client's name, its secret and the scope."
        return f"{self.tokenEndpoint} issues no token: it answers `{said}` (status {status}). {advice}"


class MskIam(SpecModel):
    """Amazon MSK: a token signed with the AWS credentials of this process."""

    region: Text
    """Where the cluster is, such as `eu-central-1`."""

    def token(self) -> Token:
        """Raises `NoToken`."""
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - only Amazon's users have it
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - comes with it

        try:
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token(self.region)
        except AttributeError:  # so the signer says that it has found none
            raise NoToken("there are no AWS credentials to sign a token with", passing=False) from None
        except BotoCoreError as error:
            raise NoToken(
                f"no token could be signed with AWS credentials: {excerpt(str(error))}", passing=True
            ) from None
        return Token(token, expires_ms)
