"""What is done about hooks, and about what a forge answers: without any waiting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from eventsources.base import Identity
from eventsources.metrics import SourceMetrics
from eventsources.registration.forge import ForgeError
from eventsources.registration.github import GithubForge, api_address
from eventsources.registration.plan import Change, Found, plan
from eventsources.registration.registrar import Registration
from eventsources.sources.github import GithubSpec
from sensors.spec.problems import ManifestError
from tests.actions.conftest import Reply
from tests.eventsources.forge_server import TOKEN, GithubServer, reply
from tests.eventsources.serving import manifest

NOW = 1_700_000_000.0
OURS = "https://hooks.example/orders"


# --- the plan ---------------------------------------------------------------------------------------------------------

_SETTINGS = {"active": True, "events": ["push"]}


def _hook(id: str, url: str = OURS, **settings: Any) -> Found:
    return Found(id, url, {**_SETTINGS, **settings})


@pytest.mark.parametrize(
    ("found", "secret_is_right", "expected"),
    [
        ([], True, Change(create=True)),
        ([_hook("1", "https://other.example/orders")], True, Change(create=True)),
        ([_hook("1")], True, Change()),
        ([_hook("1")], False, Change(update="1")),
        ([_hook("1", active=False)], True, Change(update="1")),
        ([_hook("1", events=["push", "fork"])], True, Change(update="1")),
        ([Found("1", OURS, {"active": True, "more": 1})], True, Change()),
        ([_hook("1"), _hook("2")], True, Change(remove=("2",))),
        ([_hook("1", active=False), _hook("2")], True, Change(remove=("2",), update="1")),
    ],
)
def test_what_is_to_be_done(found: list[Found], secret_is_right: bool, expected: Change) -> None:
    assert plan(found, OURS, _SETTINGS, secret_is_right=secret_is_right) == expected


@given(st.lists(st.tuples(st.sampled_from([OURS, "https://other.example"]), st.booleans())))
def test_whoever_looks_last_leaves_one_hook_and_touches_no_other(hooks: list[tuple[str, bool]]) -> None:
    found = [_hook(str(number), url, active=active) for number, (url, active) in enumerate(hooks)]
    change = plan(found, OURS, _SETTINGS, secret_is_right=True)
    left = [each for each in found if each.id not in change.remove]
    left = [_hook(each.id, each.url) if each.id == change.update else each for each in left]
    left += [_hook("new")] if change.create else []
    assert [each.settings for each in left if each.url == OURS] == [_SETTINGS]
    assert [each for each in left if each.url != OURS] == [each for each in found if each.url != OURS]
    assert plan(left, OURS, _SETTINGS, secret_is_right=True) == Change()


# --- what a forge answers ---------------------------------------------------------------------------------------------

MakeSecret = Callable[..., dict[str, str]]


@pytest.fixture
def server() -> Iterator[GithubServer]:
    made = GithubServer("/repos/me/one", "/repos/me/two")
    yield made
    made.close()


def _github(server: GithubServer, now: Callable[[], float] = lambda: NOW, **fields: Any) -> GithubForge:
    fields |= {"webhook": {"endpoint": "/orders", "url": "https://hooks.example"}, "githubBaseURL": server.url}
    fields["repositories"] = [{"owner": "me", "names": ["one", "two"]}]
    return GithubForge(GithubSpec(**fields), now)


def _look(forge: GithubForge) -> float:
    identity = Identity("shop", "orders", "github")
    pause = Registration(identity, forge, SourceMetrics(), removed_at_end=False).look(lambda: True, lambda _: None)
    forge.close()
    return pause


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (reply(429, Retry_After="77"), 77),
        (reply(403, Retry_After="77"), 77),
        (reply(429, Retry_After="Tue, 14 Nov 2023 22:15:20 GMT"), 120),
        (reply(403, X_RateLimit_Remaining="0", X_RateLimit_Reset=str(int(NOW) + 300)), 300),
        (reply(429, X_RateLimit_Remaining="0", X_RateLimit_Reset=str(int(NOW) + 300)), 300),
        (reply(429, RateLimit_Remaining="0", RateLimit_Reset=str(int(NOW) + 300)), 300),
        (reply(429, X_RateLimit_Remaining="0", X_RateLimit_Reset=str(int(NOW) - 9)), 1),
        (reply(403, {"message": "You have exceeded a secondary rate limit."}), 60),
        (reply(429), 60),
        (reply(429, Retry_After="soon"), 60),
        (reply(429, Retry_After="999999999"), 3600),
        (reply(503, Retry_After="77"), 77),
    ],
)
def test_a_forge_that_wants_no_requests_gets_none(
    server: GithubServer, secret: MakeSecret, answer: Reply, seconds: int
) -> None:
    server.faults.append(answer)
    assert seconds <= _look(_github(server, apiToken=secret(TOKEN))) <= max(seconds, 2) * 1.2
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "least", "most"),
    [
        (reply(403, X_RateLimit_Remaining="12"), 2, 2.4),
        (reply(500), 2, 2.4),
        (reply(401), 600, 720),
    ],
)
def test_other_refusals_are_tried_again_in_due_course(
    server: GithubServer, secret: MakeSecret, answer: Reply, least: float, most: float
) -> None:
    """The other repository is a passing trouble."""
    server.faults += [answer, reply(500)]
    assert least <= _look(_github(server, apiToken=secret(TOKEN))) <= most


def test_a_look_that_has_made_something_is_soon_followed_by_another(server: GithubServer, secret: MakeSecret) -> None:
    assert 60 <= _look(_github(server, apiToken=secret(TOKEN))) <= 72
    assert 3600 <= _look(_github(server, apiToken=secret(TOKEN))) <= 4320


def test_pauses_grow_and_are_forgotten(server: GithubServer, secret: MakeSecret) -> None:
    forge = _github(server, apiToken=secret(TOKEN))
    registration = Registration(Identity("shop", "orders", "github"), forge, SourceMetrics(), removed_at_end=False)
    server.faults += [reply(500)] * 24
    pauses = [registration.look(lambda: True, lambda _: None) for _ in range(14)]
    for number, pause in enumerate(pauses[:12]):
        assert min(2 * 2**number, 600) <= pause <= min(2 * 2**number, 600) * 1.2
    server.faults += [reply(500)] * 2
    assert registration.look(lambda: True, lambda _: None) <= 2.4
    forge.close()


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("", "https://api.github.com"),
        ("https://api.github.com/", "https://api.github.com"),
        ("https://git.example", "https://git.example/api/v3"),
        ("https://git.example/api/v3/", "https://git.example/api/v3"),
        ("https://api.octo.ghe.com", "https://api.octo.ghe.com"),
    ],
)
def test_where_the_api_is(base: str, expected: str) -> None:
    assert api_address(base) == expected


# --- a GitHub App -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def _pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


class _Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def test_an_app_gets_a_token_for_hooks_only_and_renews_it_in_time(
    server: GithubServer, secret: MakeSecret, key: rsa.RSAPrivateKey
) -> None:
    server.public_key = key.public_key()
    server.expires = datetime.fromtimestamp(NOW + 3600, UTC)
    clock = _Clock()
    app = {"privateKey": secret(_pem(key)), "appID": 5, "installationID": 7}
    forge = _github(server, clock, githubApp=app)
    [one, two] = forge.places
    assert forge.hooks(one) == forge.hooks(two) == []
    assert server.granted == [{"permissions": {"repository_hooks": "write"}}]
    clock.now += 3601 - 300
    server.expires = datetime.fromtimestamp(NOW + 7200, UTC)
    assert forge.hooks(one) == []
    assert len(server.granted) == 2
    server.tokens = set()
    with pytest.raises(ForgeError, match="GitHub does not accept `githubApp`"):
        forge.hooks(one)
    assert forge.hooks(one) == [], "a token that was refused is not used again"
    assert len(server.granted) == 3
    forge.close()


def test_an_app_for_organizations(server: GithubServer, secret: MakeSecret, key: rsa.RSAPrivateKey) -> None:
    server.public_key = key.public_key()
    server.hooks["/orgs/us"] = []
    app = {"privateKey": secret(_pem(key)), "appID": 5, "installationID": 7}
    forge = _github(server, githubApp=app, organizations=["us"])
    forge.hooks(forge.places[-1])
    assert server.granted == [{"permissions": {"repository_hooks": "write", "organization_hooks": "write"}}]
    forge.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (reply(422, {"message": "The permissions requested are not granted"}), "422 .*: .*are not granted"),
        (reply(404), "does not know the installation `7` of the App `5`, or `githubApp` may not"),
        (reply(401), "does not accept `githubApp`"),
        (reply(201, {"token": 1}), "has no token for the App"),
        (reply(201, {"token": "a", "expires_at": "soon"}), "has no token for the App"),
    ],
)
def test_an_app_that_gets_no_token(
    server: GithubServer, secret: MakeSecret, key: rsa.RSAPrivateKey, answer: Reply, message: str
) -> None:
    server.faults.append(answer)
    app = {"privateKey": secret(_pem(key)), "appID": 5, "installationID": 7}
    forge = _github(server, githubApp=app)
    with pytest.raises(ForgeError, match=message):
        forge.hooks(forge.places[0])
    forge.close()


@pytest.mark.parametrize("pem", ["", "no key", "elliptic"])
def test_a_key_that_is_none(
    server: GithubServer, secret: MakeSecret, caplog: pytest.LogCaptureFixture, pem: str
) -> None:
    text = _pem(ec.generate_private_key(ec.SECP256R1())) if pem == "elliptic" else pem
    _look(_github(server, githubApp={"privateKey": secret(text), "appID": 5, "installationID": 7}))
    [line] = caplog.messages
    assert "hooks are not looked after: `githubApp.privateKey` is not the PEM of an RSA key" in line
    assert server.requests == []


def test_a_token_comes_before_an_app(server: GithubServer, secret: MakeSecret, key: rsa.RSAPrivateKey) -> None:
    app = {"privateKey": secret(_pem(key), "pem"), "appID": 5, "installationID": 7}
    forge = _github(server, githubApp=app, apiToken=secret(TOKEN))
    assert forge.hooks(forge.places[0]) == []
    assert server.granted == []
    forge.close()


def test_an_app_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensors.extras._is_installed", lambda module: module != "cryptography")
    app = {"privateKey": {"name": "a", "key": "b"}, "appID": 5, "installationID": 7}
    with pytest.raises(ManifestError, match=re.escape("install `kafka-eventbus[github]`")):
        manifest("github", orders={"webhook": {"endpoint": "/"}, "githubApp": app})
    manifest("github", orders={"webhook": {"endpoint": "/"}})
