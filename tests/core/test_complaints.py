"""What is made of the brokers' complaints where a client logs in by token."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventbus.clock import SystemClock
from eventbus.errors import FatalError, LogError, RetriableError
from eventbus.kafka.complaints import Complaints
from eventbus.kafka.config import Settings
from eventbus.kafka.connection import Connection
from eventbus.kafka.tokens import NoToken, Token, Tokens

TOKENLESS = "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception"
INVALID = 'sasl_ssl://h:1/1: SASL authentication error: {"status":"invalid_token"} (after 3ms in state AUTH_REQ)'
TOO_SOON = (
    "sasl_ssl://h:1/1: SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL state"
)
AWAY = NoToken("the provider is away", passing=True)
REFUSED = NoToken("the provider refuses", passing=False)


class Client:
    def set_sasl_credentials(self, username: str, password: str) -> None:
        raise AssertionError("there are none")


def _no_answer(tokens: Tokens | None, *said: str) -> LogError:
    """What becomes of a question after the brokers have said this."""
    secrets = {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}
    complaints = Complaints(Settings(Connection("h:1", secrets=lambda: secrets, tokens=tokens), "me"))
    for each in said:
        complaints.note(KafkaError(KafkaError._AUTHENTICATION, each))
    with pytest.raises(LogError) as caught, complaints.asking(Client(), "asking"):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return caught.value


def _tokens(trouble: NoToken | None) -> Tokens:
    def fetch() -> None:
        raise AssertionError("nobody has asked for one")

    tokens = Tokens(fetch)  # type: ignore[arg-type]  # it never returns
    tokens.trouble = trouble
    return tokens


@pytest.mark.parametrize("said", [TOKENLESS, INVALID])
def test_without_a_token_it_is_the_provider_who_decides_whether_to_wait(said: str) -> None:
    waiting, refused = (_no_answer(_tokens(trouble), said) for trouble in (AWAY, REFUSED))
    assert (type(waiting), str(waiting)) == (RetriableError, "Kafka, asking: the provider is away")
    assert (type(refused), str(refused)) == (FatalError, "Kafka, asking: the provider refuses")


def test_a_token_that_has_come_meanwhile_is_waited_for() -> None:
    error = _no_answer(_tokens(None), TOKENLESS)
    assert isinstance(error, RetriableError)
    assert "token" not in str(error)


def test_a_complaint_of_the_old_token_is_no_reason_to_stop_when_there_is_a_new_one() -> None:
    tokens = Tokens(lambda: Token("new", SystemClock().now_ms() + 60_000))
    tokens.trouble = AWAY
    tokens.get()
    assert isinstance(_no_answer(tokens, INVALID), RetriableError)


def test_a_good_token_that_is_refused_needs_a_person() -> None:
    error = _no_answer(_tokens(None), INVALID)
    assert isinstance(error, FatalError)
    assert str(error).endswith("Check what the broker asks of a token: its issuer, audience and scope.")


def test_a_login_that_was_renewed_too_soon_needs_nobody() -> None:
    assert isinstance(_no_answer(_tokens(None), TOO_SOON), RetriableError)


def test_tokens_that_librdkafka_fetches() -> None:
    error = _no_answer(None, "Failed to acquire SASL OAUTHBEARER token: Failed to connect to localhost:1 after 0 ms")
    assert isinstance(error, RetriableError)
    assert str(error).endswith("There is no token to log in with: Failed to connect to localhost:1 after 0 ms")
