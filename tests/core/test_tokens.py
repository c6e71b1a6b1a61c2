"""Tokens of OAUTHBEARER: fetched in time, shared, and used for as long as they are good."""

from __future__ import annotations

import logging

import pytest

from eventbus.clock import ManualClock
from eventbus.kafka.tokens import NoToken, Token, Tokens

LIFE = 1000.0
AWAY = NoToken("nobody is there", passing=True)


class Provider:
    """Issues numbered tokens, or says why not."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.issued = 0
        self.trouble: NoToken | None = None

    def __call__(self) -> Token:
        if self.trouble is not None:
            raise self.trouble
        self.issued += 1
        return Token(str(self.issued), self._clock.now_ms() + round(LIFE * 1000), {"cluster": "c"})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def provider(clock: ManualClock) -> Provider:
    return Provider(clock)


@pytest.fixture
def tokens(provider: Provider, clock: ManualClock) -> Tokens:
    return Tokens(provider, clock)


def test_the_callback_answers_as_librdkafka_wants_it(tokens: Tokens, clock: ManualClock) -> None:
    assert tokens("") == ("1", clock.now_ms() / 1000 + LIFE, "", {"cluster": "c"})


def test_clients_share_a_token_while_most_of_its_life_is_left(tokens: Tokens, clock: ManualClock) -> None:
    assert tokens.get().text == "1"
    clock.advance(0.69 * LIFE)
    assert tokens.get().text == "1"


def test_whoever_asks_when_librdkafka_does_gets_a_new_one(tokens: Tokens, clock: ManualClock) -> None:
    tokens.get()
    clock.advance(0.8 * LIFE)
    assert [tokens.get().text, tokens.get().text] == ["2", "2"]


def test_the_old_one_goes_on_while_it_is_good(
    tokens: Tokens, clock: ManualClock, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    tokens.get()
    provider.trouble = AWAY
    clock.advance(0.8 * LIFE)
    with caplog.at_level(logging.WARNING):
        assert tokens.get().text == "1"
    assert "going on with the old one: nobody is there" in caplog.text
    assert tokens.trouble is None
    provider.trouble = None
    assert tokens.get().text == "2"


def test_without_any_the_reason_is_kept_until_there_is_one(
    tokens: Tokens, clock: ManualClock, provider: Provider
) -> None:
    tokens.get()
    provider.trouble = AWAY
    clock.advance(LIFE - 1)
    with pytest.raises(NoToken, match="nobody is there"):
        tokens.get()
    assert tokens.trouble is AWAY
    provider.trouble = None
    assert tokens.get().text == "2"
    assert tokens.trouble is None
