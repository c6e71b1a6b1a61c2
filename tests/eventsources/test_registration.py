"""Hooks are registered at servers that behave as the forges do, and events come in whatever they do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

import pytest

from eventbus import Bus
from eventsources.election.filelock import FileElection
from eventsources.runner import SourceRunner
from tests.eventsources.fetching import until
from tests.eventsources.forge_server import TOKEN, BitbucketServer, ForgeServer, GithubServer, GitlabServer, reply
from tests.eventsources.serving import Alone, Shop, manifest, metric

SECRET = "h00k"
URL = "https://hooks.example/base"
OURS = f"{URL}/orders"

MakeSecret = Callable[..., dict[str, str]]


class Kind(NamedTuple):
    """A forge: its server, and what a manifest says to register two hooks there."""

    name: str
    server: type[ForgeServer]
    places: tuple[str, str]
    labels: tuple[str, str]
    spec: dict[str, Any]
    proof: str
    base: str | None
    event: str
    expected: dict[str, Any]
    """What is to be registered, with the event, apart from the secret."""
    stale: dict[str, Any]
    """A hook that is ours, and not as it should be."""


GITHUB = Kind(
    "github",
    GithubServer,
    ("/repos/me/one", "/orgs/us"),
    ("the repository `me/one`", "the organization `us`"),
    {"apiToken": "token", "repositories": [{"owner": "me", "names": ["one"]}], "organizations": ["us"]},
    "webhookSecret",
    "githubBaseURL",
    "push",
    {"active": True, "events": ["push"], "config": {"url": OURS, "content_type": "json", "insecure_ssl": "0"}},
    {"active": False, "events": ["push"], "config": {"url": OURS, "content_type": "json", "secret": SECRET}},
)
GITLAB = Kind(
    "gitlab",
    GitlabServer,
    ("/projects/me/one", "/groups/us"),
    ("the project `me/one`", "the group `us`"),
    {"accessToken": "token", "projects": ["me/one"], "groups": ["us"]},
    "secretToken",
    "gitlabBaseURL",
    "TagPushEvents",
    {"url": OURS, "enable_ssl_verification": False, "push_events": False, "tag_push_events": True},
    {"url": OURS, "push_events": True, "token": SECRET},
)
BITBUCKET = Kind(
    "bitbucket",
    BitbucketServer,
    ("/repositories/me/one", "/repositories/us/two"),
    ("the repository `me/one`", "the repository `us/two`"),
    {
        "auth": {"oauthToken": "token"},
        "repositories": [{"owner": "me", "repositorySlug": "one"}, {"owner": "us", "repositorySlug": "two"}],
    },
    "webhookSecret",
    None,
    "repo:push",
    {"url": OURS, "active": True, "events": ["repo:push"]},
    {"url": OURS, "active": True, "events": ["repo:fork"], "secret": SECRET},
)
KINDS = [GITHUB, GITLAB, BITBUCKET]


def _without_waiting(patch: pytest.MonkeyPatch, **seconds: float) -> None:
    usual = {"GLANCE": 0.01, "LOOK": 0.02, "CONFIRM": 0.02, "SUCCESSION": 0.01}
    for name, value in {**usual, **seconds}.items():
        patch.setattr(f"eventsources.registration.registrar._{name}_SECONDS", value)
    for name, value in {"_WRITES_APART": 0.0, "_FIRST_PAUSE": 0.01, "_LONGEST_PAUSE": 0.05}.items():
        patch.setattr(f"eventsources.registration.registrar.{name}", value)


class World:
    """One forge, and replicas of an EventSource that register hooks there."""

    def __init__(self, kind: Kind, server: ForgeServer, bus: Bus, secret: MakeSecret) -> None:
        self.kind, self.server, self.bus, self.secret = kind, server, bus, secret
        self.elect: Callable[[str], Any] = lambda _: Alone()
        self.token, self.proof = secret(TOKEN, "token"), secret(SECRET, "proof")

    def spec(self, **changes: Any) -> dict[str, Any]:
        kind = self.kind
        base = {} if kind.base is None else {kind.base: self.server.url}
        webhook = {"endpoint": "/orders", "port": 0, "url": f"{URL}/"}
        spec = {"webhook": webhook, "events": [kind.event], kind.proof: self.proof, **base, **kind.spec, **changes}
        resolved: dict[str, Any] = self._resolved(spec)
        return resolved

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._resolved(each) for name, each in value.items()}
        return self.token if value == "token" else value

    @contextmanager
    def replica(self, **changes: Any) -> Iterator[SourceRunner]:
        runner = SourceRunner(
            manifest(self.kind.name, orders=self.spec(**changes)), self.bus, self.elect, drain_seconds=1
        )
        runner.start()
        try:
            yield runner
        finally:
            runner.stop()

    def ours(self, place: int = 0) -> list[dict[str, Any]]:
        hooks = self.server.hooks[self.kind.places[place]]
        return [each for each in hooks if OURS in (each.get("url"), each.get("config", {}).get("url"))]

    def secret_of(self, hook: dict[str, Any]) -> str | None:
        found: str | None = hook.get("config", hook).get("secret", hook.get("token"))
        return found

    def holds(self, place: int = 0, secret: str = SECRET) -> bool:
        """Whether there is one hook, and it is as it should be."""
        ours = self.ours(place)
        return len(ours) == 1 and _covers(ours[0], self.kind.expected) and self.secret_of(ours[0]) == secret


def _covers(hook: dict[str, Any], expected: dict[str, Any]) -> bool:
    nested = {name: value for name, value in expected.items() if isinstance(value, dict)}
    flat = {name: value for name, value in expected.items() if name not in nested}
    return flat.items() <= hook.items() and all(value.items() <= hook[name].items() for name, value in nested.items())


def outcomes(runner: SourceRunner, outcome: str) -> float:
    labels = {"eventsource": "shop", "event": "orders", "outcome": outcome}
    return metric(runner, "eventbus_source_hooks_total", **labels)


@pytest.fixture(params=KINDS, ids=lambda each: each.name)
def world(
    request: pytest.FixtureRequest, bus: Bus, secret: MakeSecret, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    with _world(request.param, bus, secret, monkeypatch) as made:
        yield made


@contextmanager
def _world(kind: Kind, bus: Bus, secret: MakeSecret, patch: pytest.MonkeyPatch) -> Iterator[World]:
    _without_waiting(patch)
    server = kind.server(*kind.places)
    patch.setattr("eventsources.registration.bitbucket._API", f"{server.url}/2.0")
    try:
        yield World(kind, server, bus, secret)
    finally:
        server.close()


# --- what is registered -----------------------------------------------------------------------------------------------


def test_a_hook_that_is_missing_is_made(world: World) -> None:
    other = {"url": "https://other.example/orders", "config": {"url": "https://other.example/orders"}}
    kept = world.server.add(world.kind.places[0], **{**world.kind.stale, **other})
    with world.replica() as runner:
        until(lambda: world.holds(0) and world.holds(1))
        until(lambda: outcomes(runner, "kept") > 2)
        assert outcomes(runner, "created") == 2
    assert world.server.hooks[world.kind.places[0]][0] is kept
    assert len(world.server.asked("POST", world.server.updating, "DELETE")) == 2
    assert world.holds(0), "it stays, unless it is to be removed"


def test_a_hook_that_differs_is_changed_on_whatever_page_it_is(world: World) -> None:
    for number in range(5):
        url = f"https://other.example/{number}"
        world.server.add(world.kind.places[0], **{**world.kind.stale, "url": url, "config": {"url": url}})
    stale = world.server.add(world.kind.places[0], **world.kind.stale)
    with world.replica() as runner:
        until(lambda: world.holds(0) and world.holds(1))
        until(lambda: outcomes(runner, "kept") > 2)
        assert (outcomes(runner, "created"), outcomes(runner, "updated")) == (1, 1)
    assert world.ours() == [stale]


def test_of_several_hooks_the_oldest_stays(world: World) -> None:
    world.server.page_size = 10
    oldest = world.server.add(world.kind.places[0], **world.kind.stale)
    for event in ("a", "b"):
        world.server.add(world.kind.places[0], **{**world.kind.stale, "events": [event]})
    world.server.hooks[world.kind.places[0]].reverse()
    with world.replica() as runner:
        until(lambda: world.holds(0))
        assert outcomes(runner, "removed") == 2
    assert world.ours() == [oldest]


def test_a_secret_that_may_be_another_is_written_once(world: World) -> None:
    """No service tells what it is."""
    with world.replica():
        until(lambda: world.holds(0) and world.holds(1))
    for hook in world.ours():
        hook.get("config", hook)["token" if world.kind is GITLAB else "secret"] = "other"
    with world.replica() as runner:
        until(lambda: world.holds(0))
        until(lambda: outcomes(runner, "kept") > 2)
        assert (outcomes(runner, "created"), outcomes(runner, "updated")) == (0, 2)


def test_a_changed_secret_is_written_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_waiting(monkeypatch, LOOK=3600, CONFIRM=3600)
    with world.replica():
        until(lambda: world.holds(0) and world.holds(1))
        world.secret("n3w", "proof")
        until(lambda: world.holds(0, "n3w") and world.holds(1, "n3w"))


def test_without_a_secret_none_is_written(world: World) -> None:
    with world.replica(**{world.kind.proof: None}):
        until(lambda: world.ours(1))
    assert world.secret_of(world.ours()[0]) is None


def test_all_events(world: World) -> None:
    with world.replica(events=["*"]) as runner:
        until(lambda: outcomes(runner, "kept") > 2)
    [hook] = world.ours()
    told = hook["events"] if "events" in hook else {name for name in GitlabServer.switches if hook[name]}
    assert (
        set(told)
        == {"github": {"*"}, "gitlab": {*GitlabServer.switches}, "bitbucket": {*BitbucketServer.types}}[world.kind.name]
    )
    assert outcomes(runner, "updated") == 0


def test_what_the_fields_say_is_what_is_registered(
    bus: Bus, secret: MakeSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _world(GITHUB, bus, secret, monkeypatch) as world:
        with world.replica(insecure=True, active=False, contentType="form"):
            until(world.ours)
        [hook] = world.ours()
        assert (hook["active"], hook["config"]["insecure_ssl"], hook["config"]["content_type"]) == (False, "1", "form")
    with _world(GITLAB, bus, secret, monkeypatch) as world:
        with world.replica(enableSSLVerification=True):
            until(world.ours)
        assert world.ours()[0]["enable_ssl_verification"] is True


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (GITHUB, {"repositories": [], "organizations": [], "owner": "me", "repository": "one"}),
        (GITLAB, {"projects": [], "groups": [], "projectID": "me/one"}),
        (BITBUCKET, {"repositories": [], "owner": "me", "repositorySlug": "one", "projectKey": "K"}),
        (BITBUCKET, {"auth": {"basic": {"username": {"name": "vault", "key": "user"}, "password": "token"}}}),
    ],
    ids=lambda each: each.name if isinstance(each, Kind) else "",
)
def test_other_ways_to_say_it(
    bus: Bus, secret: MakeSecret, monkeypatch: pytest.MonkeyPatch, kind: Kind, spec: dict[str, Any]
) -> None:
    secret("me", "user")
    with _world(kind, bus, secret, monkeypatch) as world, world.replica(**spec):
        until(world.holds)


# --- when nothing goes well -------------------------------------------------------------------------------------------


def test_events_are_received_whatever_the_forge_does(world: World) -> None:
    world.server.gate.clear()
    with world.replica(**{world.kind.proof: None}) as runner:
        assert Shop(world.bus, runner).send().status == 202
        assert world.server.requests == []
        world.server.gate.set()
        until(world.ours)


def test_what_fails_is_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.server.faults += [reply(500), reply(502, {"error": TOKEN}), reply(200, {"no": "list"}), reply(200, ["hook"])]
    world.server.faults += [reply(200)]
    with world.replica() as runner:
        until(lambda: world.holds(0) and world.holds(1))
        assert outcomes(runner, "failed") == 5
        assert runner.complaints() == []
    assert TOKEN not in caplog.text
    assert "502 Bad Gateway" in caplog.text
    assert "answered with something other than" in caplog.text


def test_a_forge_that_is_not_there(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.server.close()
    with world.replica() as runner:
        until(lambda: outcomes(runner, "failed") > 3)
        runner.stop()
    [line] = [each for each in caplog.messages if "not looked after" in each]
    assert "cannot be reached: no connection: Connection refused" in line


@pytest.mark.parametrize(
    ("status", "reason"), [(404, "check the name, and that it has the "), (403, "does not permit it (403): `")]
)
def test_one_place_does_not_hinder_the_others(
    world: World, caplog: pytest.LogCaptureFixture, status: int, reason: str
) -> None:
    if status == 404:
        del world.server.hooks[world.kind.places[0]]
    else:
        monopoly = world.server.answer
        first = world.server.prefix + world.kind.places[0].replace(
            "me/one", "me%2Fone" if world.kind is GITLAB else "me/one"
        )
        world.server.answer = lambda request, path, query: (  # type: ignore[method-assign]
            reply(403, {"message": "Forbidden"}) if request.path.startswith(first) else monopoly(request, path, query)
        )
    with world.replica() as runner:
        until(lambda: world.holds(1))
        until(lambda: outcomes(runner, "failed") > 2)
    [line] = [each for each in caplog.messages if "not looked after" in each]
    assert f"the hook of {world.kind.labels[0]} is not looked after" in line
    assert reason in line


def test_credentials_that_are_refused_are_told_once_and_not_tried_everywhere(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.secret("wr0ng", "token")
    with world.replica() as runner:
        until(lambda: outcomes(runner, "failed") > 2)
        assert not [each for each in world.server.asked("GET") if world.kind.places[1] in each]
        world.secret(TOKEN, "token")
        until(lambda: world.holds(0) and world.holds(1))
    [line] = [each for each in caplog.messages if "not looked after" in each]
    field = next(iter(world.kind.spec))
    assert f"does not accept `{field}` (401): it is wrong or has expired" in line
    assert "wr0ng" not in caplog.text


@pytest.mark.parametrize(
    ("name", "value"), [("token", ""), ("token", None), ("token", "line\nbreak"), ("proof", ""), ("proof", None)]
)
def test_secrets_that_cannot_be_used(
    world: World, caplog: pytest.LogCaptureFixture, tmp_path: Path, name: str, value: str | None
) -> None:
    world.secret(value or "", name)
    if value is None:
        (tmp_path / "vault" / name).unlink()
    with world.replica() as runner:
        until(lambda: outcomes(runner, "failed") > 2)
        world.secret({"token": TOKEN, "proof": SECRET}[name], name)
        until(lambda: world.holds(0) and world.holds(1))
    assert "not looked after" in caplog.text
    assert "break" not in caplog.text
    assert "Traceback" not in caplog.text


def test_a_page_elsewhere_is_not_asked_for_elsewhere(world: World) -> None:
    """The token goes to no other host, whatever a page says."""
    world.server.elsewhere = "http://attacker.example"  # type: ignore[misc]
    for number in range(3):
        url = f"https://other.example/{number}"
        world.server.add(world.kind.places[0], **{**world.kind.stale, "url": url, "config": {"url": url}})
    world.server.add(world.kind.places[0], **world.kind.stale)
    with world.replica() as runner:
        until(lambda: world.holds(0))
        assert outcomes(runner, "failed") == 0


def test_a_list_without_an_end(world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventsources.registration.forge._MOST_PAGES", 3)
    page = world.server.page
    world.server.page = lambda entries, path, number: page([{}] * 9, path, 1)  # type: ignore[method-assign]
    with world.replica() as runner:
        until(lambda: outcomes(runner, "failed") > 1)
    assert "more than 3 pages" in caplog.text


# --- several replicas -------------------------------------------------------------------------------------------------


def test_two_that_do_not_know_each_other_leave_one_hook(world: World) -> None:
    """As on two machines without Kubernetes: both see that there is none, and both make one."""
    world.server.barrier = Barrier(2)
    with world.replica() as one, world.replica() as two:
        until(lambda: len(world.server.asked("POST")) >= 2)
        world.server.barrier.abort()
        world.server.barrier = None
        until(lambda: outcomes(one, "kept") > 4 and outcomes(two, "kept") > 4)
        assert world.holds(0)
        assert world.holds(1)


@pytest.fixture
def elected(bus: Bus, secret: MakeSecret, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A contender looks every half second whether it can lead. It is the same at every forge."""
    with _world(GITLAB, bus, secret, monkeypatch) as world:
        _without_waiting(monkeypatch, SUCCESSION=2.0)
        world.elect = lambda name: FileElection(name, "default", tmp_path / "locks")
        yield world


def test_one_of_several_replicas_registers(elected: World) -> None:
    with elected.replica() as one:
        until(lambda: elected.holds(0) and elected.holds(1))
        with elected.replica() as two:
            until(lambda: outcomes(one, "kept") > 10)
            assert [outcomes(two, name) for name in ("kept", "created", "updated", "failed")] == [0] * 4


def test_the_last_one_removes_the_hooks(elected: World) -> None:
    with elected.replica(deleteHookOnFinish=True) as one:
        until(lambda: elected.holds(0) and elected.holds(1))
        with elected.replica(deleteHookOnFinish=True) as two:
            one.stop()
            until(lambda: outcomes(two, "kept") > 2)
            assert elected.holds(0)
            assert elected.server.asked("DELETE") == []
    assert (elected.ours(0), elected.ours(1)) == ([], [])
    assert len(elected.server.asked("DELETE")) == 2


def test_who_does_not_lead_removes_nothing_and_waits_for_nobody(
    elected: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_waiting(monkeypatch, SUCCESSION=60)
    with elected.replica():
        until(lambda: elected.holds(0) and elected.holds(1))
        began = time.monotonic()
        with elected.replica(deleteHookOnFinish=True):
            pass
        assert time.monotonic() - began < 30
        assert elected.server.asked("DELETE") == []


def test_what_cannot_be_removed_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.replica(deleteHookOnFinish=True):
        until(lambda: world.holds(0) and world.holds(1))
        world.server.faults += [reply(500)] * 1000
    assert sum("stays: " in each for each in caplog.messages) == 2


def test_an_election_that_fails_harms_no_event(world: World, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Alone):
        def wait_until_leading(self, stop: Any) -> int | None:
            raise ZeroDivisionError

    candidates: list[Any] = [Broken(), Alone()]
    world.elect = lambda _: candidates.pop(0)
    with world.replica(**{world.kind.proof: None}) as runner:
        until(world.ours)
        assert Shop(world.bus, runner).send().status == 202
        assert runner.complaints() == []
    assert "ZeroDivisionError" in caplog.text


def test_secrets_are_not_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.server.faults += [reply(422, {"message": f"{SECRET} {TOKEN}"}), reply(400, {"message": f"me:{TOKEN}"})]
    with world.replica(deleteHookOnFinish=True):
        until(lambda: world.holds(0) and world.holds(1))
    assert "<secret>" in caplog.text
    assert TOKEN not in caplog.text
    assert SECRET not in caplog.text
