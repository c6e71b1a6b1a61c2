"""Signed requests over real HTTP: only who signs gets in, and what they tell becomes an event once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from eventbus import Bus
from eventsources.receiver.hooks import ForgeSpec
from eventsources.sources import SOURCES
from eventsources.spec import EVENT_SOURCES
from sensors.spec.problems import ManifestError
from tests.eventsources.hooks import (
    BITBUCKET,
    FORGES,
    FORM,
    GITHUB,
    GITLAB,
    JSON,
    KEY,
    PUSH,
    SERVICES,
    SIGNING,
    SLACK,
    Service,
    digest,
    hook,
    listening,
    write_secrets,
)
from tests.eventsources.serving import manifest, metric

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "argo-examples"


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as made:
        made.ensure(2)
        yield made


@pytest.fixture(params=SERVICES, ids=lambda each: each.kind)
def service(request: pytest.FixtureRequest) -> Service:
    found: Service = request.param
    return found


@pytest.fixture(autouse=True)
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    return write_secrets(tmp_path)


# --- who may send -----------------------------------------------------------------------------------------------------


def test_the_right_proof_is_taken(bus: Bus, service: Service) -> None:
    with listening(bus, service) as shop:
        assert shop.send(service.body, **service.right()).status == service.accepted
        [event] = shop.events()
    assert (event.source, event.subject, event.type) == ("shop", "orders", service.kind)
    assert event.id == service.id


def test_every_other_proof_is_refused(bus: Bus, service: Service) -> None:
    right = service.right()
    proof = right[service.proof]
    prefix, equals, hexadecimal = proof.rpartition("=")
    sha1 = digest(service.body, algorithm=hashlib.sha1)
    wrong = {
        "of another key": service.prove(service.body, "other")[service.proof],
        "empty": "",
        "truncated": proof[:-1],
        "longer": proof + "0",
        "not ASCII": proof + "\u00ff",
        "of the other algorithm": f"sha1={sha1}",
        "of the other algorithm, under its name": f"{prefix}{equals}{sha1}",
        "only the prefix": prefix + equals,
    }
    if equals:
        wrong["without its prefix"] = hexadecimal
    with listening(bus, service) as shop:
        for what, given in wrong.items():
            assert shop.send(service.body, **{**right, service.proof: given}).status == 401, what
        without = {name: value for name, value in right.items() if name != service.proof}
        answer = shop.send(service.body, **without)
        assert answer.status == 401
        assert service.proof.encode() in answer.data
        assert shop.events() == []


@pytest.mark.parametrize("service", SIGNING, ids=lambda each: each.kind)
def test_a_body_that_differs_in_one_byte_is_refused(bus: Bus, service: Service) -> None:
    changed = [service.body + b" ", service.body.replace(b"1.10", b"1.11"), service.body.replace(b"{", b"{ ", 1)]
    with listening(bus, service) as shop:
        assert [shop.send(body, **service.right()).status for body in changed] == [401] * 3
        assert shop.events() == []


def test_github_never_takes_a_sha1_signature_alone(bus: Bus) -> None:
    with listening(bus, GITHUB) as shop:
        weak = {**GITHUB.headers, "X-Hub-Signature": "sha1=" + digest(PUSH, algorithm=hashlib.sha1)}
        assert shop.send(PUSH, **weak).status == 401
        assert shop.send(PUSH, **GITHUB.headers, **{"X-Hub-Signature": "sha256=" + digest(PUSH)}).status == 401


@pytest.mark.parametrize("content", ["", None], ids=["empty", "missing"])
def test_without_its_secret_nobody_gets_in(bus: Bus, service: Service, secret: Path, content: str | None) -> None:
    with listening(bus, service) as shop:
        if content is None:
            secret.unlink()
        else:
            secret.write_text(content)
        given = {**service.headers, **service.prove(service.body, "")}
        answer = shop.send(service.body, **given)
        assert (answer.status, KEY in answer.data.decode()) == (503, False)
        assert shop.events() == []


def test_a_bearer_token_is_asked_for_as_well(bus: Bus, service: Service) -> None:
    webhook = {"endpoint": "/orders", "port": 0, "authSecret": {"name": "hook", "key": "token"}}
    with listening(bus, service, webhook=webhook) as shop:
        assert shop.send(service.body, **service.right()).status == 401
        given = {**service.right(), "Authorization": "Bearer t0ken"}
        assert shop.send(service.body, **given).status == service.accepted
        assert shop.send(service.body, Authorization="Bearer t0ken", **service.headers).status == 401


def test_without_a_secret_everybody_gets_in(bus: Bus, service: Service) -> None:
    with listening(bus, service, signed=False) as shop:
        assert shop.send(service.body, **service.headers).status == service.accepted
        assert len(shop.events()) == 1


# --- what becomes an event --------------------------------------------------------------------------------------------


def test_a_repeat_has_the_id_of_the_first(bus: Bus, service: Service) -> None:
    with listening(bus, service) as shop:
        for attempt in ("1", "2"):
            shop.send(service.body, **service.right(), **{"X-Attempt-Number": attempt})
        assert [event.id for event in shop.events()] == [service.id] * 2


@pytest.mark.parametrize(
    ("service", "absent", "expected"),
    [
        (GITLAB, {"Idempotency-Key"}, "w"),
        (BITBUCKET, {"X-Request-UUID"}, "ingress"),
        (GITHUB, {"X-GitHub-Delivery"}, None),
        (GITLAB, {"Idempotency-Key", "X-Gitlab-Webhook-UUID"}, None),
    ],
    ids=["gitlab", "bitbucket-server", "github-none", "gitlab-none"],
)
def test_where_the_best_id_is_missing(bus: Bus, service: Service, absent: set[str], expected: str | None) -> None:
    """Two deliveries that nothing identifies are two events."""
    headers = {name: value for name, value in service.right().items() if name not in absent}
    with listening(bus, service) as shop:
        assert [shop.send(service.body, **headers).status for _ in range(2)] == [202, 202]
        ids = {event.id for event in shop.events()}
    assert ids == {expected} if expected else len(ids) == 2


def test_metadata_may_also_be_said_of_the_webhook() -> None:
    kind = SOURCES["github"]
    webhook = {"endpoint": "/push", "metadata": {"team": "a", "shop": "eu"}}
    spec = kind.spec.model_validate({"webhook": webhook, "events": ["*"], "metadata": {"team": "b"}})
    assert spec.described({"x": 1}) == {"x": 1, "metadata": {"team": "b", "shop": "eu"}}


@pytest.mark.parametrize("service", FORGES, ids=lambda each: each.kind)
def test_the_data_is_that_of_argo_events(bus: Bus, service: Service) -> None:
    with listening(bus, service, metadata={"team": "a"}) as shop:
        shop.send(service.body, **service.right())
        [event] = shop.events()
    data = event.json()
    assert set(data) == {"headers", "body", "metadata"}
    assert data["metadata"] == {"team": "a"}
    assert data["body"]["ref"] == "refs/heads/main"
    assert b"1.10" in (event.data or b"")
    assert data["headers"]["Content-Type"] == [JSON]
    assert KEY.encode() not in (event.data or b"")


def test_github_has_the_type_and_the_delivery_in_the_body_as_well(bus: Bus) -> None:
    with listening(bus, GITHUB) as shop:
        shop.send(PUSH, **GITHUB.right())
        [event] = shop.events()
    data = event.json()
    assert data["headers"]["X-Github-Event"] == ["push"]
    assert (data["body"]["X-GitHub-Event"], data["body"]["X-GitHub-Delivery"]) == ("push", "d-1")


def test_github_as_a_form_is_the_same_event(bus: Bus) -> None:
    body = urlencode({"payload": PUSH.decode()}).encode()
    with listening(bus, GITHUB) as shop:
        assert shop.send(body, **{**GITHUB.right(body), "Content-Type": FORM}).status == 202
        assert shop.send(PUSH, **GITHUB.right()).status == 202
        first, second = (event.json()["body"] for event in shop.events())
    assert first == second


def test_a_ping_is_an_event_like_any_other(bus: Bus) -> None:
    with listening(bus, GITHUB) as shop:
        assert shop.send(PUSH, **{**GITHUB.right(), "X-GitHub-Event": "ping"}).status == 202
        assert len(shop.events()) == 1


@pytest.mark.parametrize(
    ("service", "body", "content_type", "reason"),
    [
        (GITHUB, b"[1]", JSON, "the body is not a JSON object"),
        (GITHUB, b"{", JSON, "the body is not JSON"),
        (GITHUB, b"other=1", FORM, "the form has no field `payload`"),
        (GITHUB, b"payload=%ff", FORM, "the body is not a form"),
        (GITHUB, b"payload=x", FORM, "the body is not JSON"),
        (GITLAB, b"", JSON, "the body is not JSON"),
        (GITLAB, b'"\xff"', JSON, "the body is not UTF-8"),
        (BITBUCKET, b"[" * 100_000, JSON, "the body is not JSON"),
        (SLACK, b"{}", JSON, "the body has no `type`"),
        (SLACK, b'{"type": 1e999}', JSON, "the body has no `type`"),
        (SLACK, b"[]", JSON, "the body is not a JSON object"),
        (SLACK, b'{"type": "event_callback"}', JSON, "the body is not JSON"),
        (SLACK, b'{"type": "event_callback", "event": 1}', JSON, "the body is not a JSON object"),
        (SLACK, b"a=1", FORM, "the form has neither `payload` nor `command`"),
        (SLACK, b"&".join([b"a=1"] * 2000), FORM, "the body is not a form"),
    ],
)
def test_what_is_wrong_is_told(bus: Bus, service: Service, body: bytes, content_type: str, reason: str) -> None:
    with listening(bus, service) as shop:
        answer = shop.send(body, **{**service.right(body), "Content-Type": content_type})
        assert (answer.status, reason in answer.data.decode()) == (400, True), answer.data
        assert shop.events() == []


# --- which events -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "header", "events", "types"),
    [
        (GITHUB, "X-GitHub-Event", ["push", "delete"], ("delete", "issues")),
        (GITLAB, "X-Gitlab-Event", ["PushEvents", "TagPushEvents"], ("Tag Push Hook", "Issue Hook")),
        (BITBUCKET, "X-Event-Key", ["repo:push"], ("repo:push", "diagnostics:ping")),
    ],
    ids=lambda each: each.kind if isinstance(each, Service) else None,
)
def test_only_events_of_these_types_are_produced(
    bus: Bus, service: Service, header: str, events: list[str], types: tuple[str, str]
) -> None:
    wanted, unwanted = types
    with listening(bus, service, events=events) as shop:
        for given in (wanted, unwanted):
            assert shop.send(service.body, **{**service.right(), header: given}).status == 202
        nameless = {name: value for name, value in service.right().items() if name != header}
        assert shop.send(service.body, **nameless).status == 202
        [event] = shop.events()
        counted = metric(
            shop.runner, "eventbus_source_events_total", eventsource="shop", event="orders", outcome="filtered"
        )
    assert wanted in json.dumps(event.json()["headers"])
    assert counted == 2


@pytest.mark.parametrize("service", FORGES, ids=lambda each: each.kind)
def test_who_may_not_send_is_not_told_which_events_are_wanted(bus: Bus, service: Service) -> None:
    with listening(bus, service, events=["PushEvents"]) as shop:
        assert shop.send(service.body, **service.headers).status == 401


# --- manifests --------------------------------------------------------------------------------------------------------

_SELECTOR = {"name": "hook", "key": "key"}
_APP = {"privateKey": _SELECTOR, "appID": 5, "installationID": 7}
_NAMES = {"github": "GitHub", "gitlab": "GitLab", "bitbucket": "Bitbucket"}


@pytest.mark.parametrize(
    ("service", "spec", "message"),
    [
        (GITHUB, {"webhook": None}, "webhook"),
        (GITHUB, {"events": []}, "events"),
        (GITHUB, {"contentType": "xml"}, "contentType"),
        (GITHUB, {"webhook": {"endpoint": "push"}}, "must be a path such as `/orders`, not `push`"),
        (GITHUB, {"webhook": {"endpoint": "/p", "serverKeySecret": _SELECTOR}}, "needs `serverCertSecret`"),
        (GITHUB, {"webhook": {"endpoint": "/p", "signature": {"secret": _SELECTOR}}}, "signature"),
        (GITHUB, {"webHookSecret": _SELECTOR}, "webhookSecret"),
        (GITHUB, {"githubApp": {"appID": 1}}, "privateKey"),
        (GITLAB, {"events": ["Push Hook"]}, "GitLab has no `Push Hook`; there are `*`, `Conf"),
        (GITLAB, {"webhookSecret": _SELECTOR}, "webhookSecret"),
        (GITHUB, {"githubBaseURL": "git.example"}, "`githubBaseURL` must be a complete http:// or https:// address"),
        (GITLAB, {"webhook": {"endpoint": "/a", "url": "a"}}, "`url` must be a complete http:// or https:// address"),
        (BITBUCKET, {"auth": {"basic": {"username": _SELECTOR}}}, "password"),
        (BITBUCKET, {"auth": {}}, "`auth` needs `basic` or `oauthToken`"),
        (SLACK, {"events": ["*"]}, "events"),
    ],
)
def test_bad_manifests(service: Service, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        manifest(service.kind, orders=hook(service, **spec))
    assert message in str(caught.value)


def test_two_hooks_cannot_share_a_path() -> None:
    one = {"webhook": {"endpoint": "/push"}}
    other = {"webhook": {"endpoint": "/push", "port": "12000"}}
    with pytest.raises(ManifestError, match="`/push` is the path of the event `one` already"):
        manifest("github", one=one, other=other)
    manifest("github", one=one, other={"webhook": {"endpoint": "/push", "port": "13000"}})


def warnings(service: Service, **spec: Any) -> list[str]:
    made = manifest(service.kind, orders={"webhook": {"endpoint": "/orders"}, **spec})
    return [str(problem) for problem in made.warnings]


def test_a_hook_without_a_secret_is_warned_of(service: Service) -> None:
    [warning] = warnings(service)
    assert f"whoever knows the address can send events: set `{service.secret}`" in warning
    assert warnings(service, **{service.secret: _SELECTOR}) == []
    assert warnings(service, webhook={"endpoint": "/orders", "authSecret": _SELECTOR}) == []


@pytest.mark.parametrize(
    ("service", "spec", "lacking"),
    [
        (
            GITHUB,
            {"apiToken": _SELECTOR},
            "(`repositories` or `organizations`) and `webhook.url`",
        ),
        (GITHUB, {"repositories": [{"owner": "a", "names": ["b"]}]}, "(`apiToken` or `githubApp`) and `webhook.url`"),
        (GITHUB, {"githubApp": _APP, "organizations": ["a"]}, "`webhook.url`"),
        (GITLAB, {"accessToken": _SELECTOR, "projectID": "1"}, "`webhook.url`"),
        (
            GITLAB,
            {"deleteHookOnFinish": True},
            "`accessToken` and (`projects` or `groups`) and `webhook.url`",
        ),
        (BITBUCKET, {"auth": {"oauthToken": _SELECTOR}, "owner": "a"}, "`repositories`"),
    ],
)
def test_that_hooks_are_not_registered_is_warned_of(service: Service, spec: dict[str, Any], lacking: str) -> None:
    [warning] = warnings(service, **{service.secret: _SELECTOR, **spec})
    assert f"no hook is registered at {_NAMES[service.kind]} without {lacking}" in warning


@pytest.mark.parametrize(
    ("service", "spec", "warning"),
    [
        (GITHUB, {"githubBaseURL": "http://git.example"}, "`githubBaseURL` is not https"),
        (GITLAB, {"gitlabBaseURL": "http://git.example"}, "`gitlabBaseURL` is not https"),
        (GITLAB, {"enableSSLVerification": False}, "set `enableSSLVerification`"),
        (GITLAB, {"events": ["PushEvents", "MemberEvents"]}, "only hooks of `groups` tell of `MemberEvents`"),
    ],
)
def test_what_is_dubious_about_registering_is_warned_of(service: Service, spec: dict[str, Any], warning: str) -> None:
    registering = {
        "webhook": {"endpoint": "/orders", "url": "https://hooks.example"},
        service.secret: _SELECTOR,
        **({"apiToken": _SELECTOR, "organizations": ["a"]} if service is GITHUB else {}),
        **({"accessToken": _SELECTOR, "projects": ["1"], "enableSSLVerification": True} if service is GITLAB else {}),
    }
    assert warnings(service, **registering) == []
    [given] = warnings(service, **{**registering, **spec})
    assert warning in given


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus ../shared/corpus is not there")
@pytest.mark.parametrize("kind", ["github", "bitbucket"])
def test_argo_events_own_examples_load(kind: str) -> None:
    [made] = EVENT_SOURCES.load(CORPUS / f"event-sources_{kind}.yaml")
    specs = {name: spec for _, name, spec in made.spec.sources()}
    assert isinstance(specs["example"], ForgeSpec)
    assert specs["example"].registers
