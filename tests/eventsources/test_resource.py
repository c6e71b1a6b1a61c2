"""What happens to objects of a Kubernetes cluster becomes events."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus import Bus
from eventsources.base import SourceError
from eventsources.sources import resource, resource_watch
from eventsources.sources.resource import Change, Chronicle, ResourceSource, ResourceSpec
from sensors.spec.problems import ManifestError
from tests.eventsources.fetching import fetching, killed, until
from tests.eventsources.resource_contract import ALL, IDENTITY, ResourceContract, told
from tests.eventsources.serving import manifest
from tests.eventsources.watch_server import TOKEN, WatchServer

SPEC: dict[str, Any] = {"namespace": "shop", "version": "v1", "resource": "configmaps", "eventTypes": ALL}


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchServer]:
    server = WatchServer(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    yield server
    server.close()


class TestOurOwnServer(ResourceContract):
    """See there."""


def source(**changes: Any) -> ResourceSource:
    return ResourceSource(ResourceSpec.model_validate({**SPEC, **changes}))


# --- the chronicle --------------------------------------------------------------------------------------------------


def thing(name: str, version: int, uid: str = "", created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    names = {"name": name, "namespace": "shop", "uid": uid or f"uid-{name}"}
    return {"metadata": {**names, "resourceVersion": str(version), "creationTimestamp": created}}


def chronicle(remembered: bytes | None = None, **changes: Any) -> Chronicle:
    return Chronicle(ResourceSpec.model_validate({**SPEC, **changes}), remembered, now=1_800_000_000)


def listed(made: Chronicle, version: int, *objects: dict[str, Any]) -> list[str]:
    made.begin()
    changes = [*made.listed(objects), *made.gone()]
    made.end(str(version))
    return ids(changes)


def ids(changes: list[Change]) -> list[str]:
    return [change.id for change in changes]


def test_a_watch_is_told_from_the_version_of_its_last_line() -> None:
    made = chronicle()
    assert listed(made, 10, thing("a", 3)) == ["uid-a 3 ADD"]
    assert ids(list(made.told("MODIFIED", thing("a", 12)))) == ["uid-a 12 UPDATE"]
    assert list(made.told("BOOKMARK", {"metadata": {"resourceVersion": "20"}})) == []
    assert (made.version, chronicle(made.remembered()).version) == ("20", "20")


def test_a_list_tells_what_is_different() -> None:
    made = chronicle()
    listed(made, 10, thing("same", 3), thing("changed", 4), thing("gone", 5), thing("again", 6, "first"))
    made = chronicle(made.remembered())
    now = [thing("same", 3), thing("changed", 21), thing("new", 22), thing("again", 23, "second")]
    assert listed(made, 30, *now) == [
        "uid-changed 21 UPDATE",
        "uid-new 22 ADD",
        "second 23 ADD",
        "uid-gone 5 DELETE",
        "first 6 DELETE",
    ]
    assert listed(made, 40, *now) == []


def test_a_list_that_breaks_off_is_begun_again_and_goes_on() -> None:
    made = chronicle()
    made.begin()
    assert len(list(made.listed([thing("a", 1), thing("b", 2)]))) == 2
    made = chronicle(made.remembered())
    assert made.version == ""
    assert listed(made, 10, thing("a", 1), thing("b", 2), thing("c", 3)) == ["uid-c 3 ADD"]


def test_what_is_remembered_is_what_was_told_so_far() -> None:
    """Events are delivered in portions: what is behind the last event of a portion is not yet told."""
    made = chronicle()
    listed(made, 10)
    lines = iter([thing("a", 11), thing("b", 12)])
    changes = (change for line in lines for change in made.told("ADDED", line))
    assert next(changes).id == "uid-a 11 ADD"
    after = chronicle(made.remembered())
    assert (made.version, listed(after, 20, thing("a", 11), thing("b", 12))) == ("11", ["uid-b 12 ADD"])


def test_another_selection_begins_anew() -> None:
    made = chronicle()
    listed(made, 10, thing("a", 3))
    for changes in ({"resource": "secrets"}, {"namespace": ""}, {"filter": {"prefix": "a"}}, {"group": "apps"}):
        assert chronicle(made.remembered(), **changes).version == ""
    same = chronicle(made.remembered(), eventTypes=["ADD"], metadata={"team": "till"})
    assert same.version == "10"


def test_the_start_is_that_of_the_first_process() -> None:
    wanted = {"afterStart": True}
    spec = ResourceSpec.model_validate({**SPEC, "filter": wanted})
    first = Chronicle(spec, None, now=1_800_000_000)
    listed(first, 10)
    second = Chronicle(spec, first.remembered(), now=1_900_000_000)
    old, new = thing("old", 11, created="2027-01-15T07:59:59Z"), thing("new", 12, created="2027-01-15T08:00:00Z")
    assert ids([*second.told("ADDED", old), *second.told("ADDED", new)]) == ["uid-new 12 ADD"]


def test_too_many_objects_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "MOST_KNOWN", 3)
    made = chronicle()
    many = [thing(str(number), number) for number in range(1, 6)]
    assert len(listed(made, 10, *many)) == 5
    assert not made.knows_all
    made = chronicle(made.remembered())
    assert listed(made, 20, *many[:2], thing("new", 15)) == ["uid-new 15 ADD"]
    assert made.knows_all, "they are few enough again"
    assert listed(made, 30, many[0]) == ["uid-2 2 DELETE", "uid-new 15 DELETE"]


# --- the source -----------------------------------------------------------------------------------------------------


def test_long_lists_come_in_pages_and_are_delivered_in_portions(
    objects: WatchServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_watch, "_PAGE", 3)
    monkeypatch.setattr(resource, "MOST_AT_ONCE", 2)
    for number in range(8):
        objects.create(f"order-{number}")
    with fetching(source(), bus, IDENTITY) as fetcher:
        assert len(fetcher.wait_for(8)) == 8
        until(lambda: len(fetcher.portions) == 6)
    assert fetcher.portions == [2, 1, 2, 1, 2, 0]
    assert [query.get("continue", "")[-1:] for query in objects.queries[:3]] == ["", "3", "6"]


def test_a_process_that_is_killed_between_two_portions_has_told_only_the_first(
    objects: WatchServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "MOST_AT_ONCE", 1)
    names = ["order-1", "order-2", "order-3"]
    for name in names:
        objects.create(name)
    told_by_turn = []
    for _ in names:
        with fetching(source(), bus, IDENTITY, after=killed) as fetcher:
            fetcher.failure()
            told_by_turn.append(told(fetcher.events))
    assert told_by_turn == [[("ADD", name)] for name in names]


def test_a_list_that_takes_too_long_is_begun_again(
    objects: WatchServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_watch, "_PAGE", 1)
    objects.create("order-1")
    objects.create("order-2")

    def outdate(_: Any) -> None:
        if len(objects.queries) == 1:
            objects.forget_lists()
            objects.create("order-3")

    with fetching(source(), bus, IDENTITY, before=outdate) as fetcher:
        events = fetcher.wait_for(3)
        assert told(events) == [("ADD", "order-1"), ("ADD", "order-2"), ("ADD", "order-3")]


def test_a_watch_that_is_outdated_while_it_runs_is_made_up_for(objects: WatchServer, bus: Bus) -> None:
    objects.create("order-1")
    with fetching(source(), bus, IDENTITY) as fetcher:
        fetcher.wait_for(1)
        until(lambda: any("watch" in query for query in objects.queries))
        objects.delete("order-1")
        objects.forget()
        objects.create("order-2")
        assert {type for type, _ in told(fetcher.wait_for(3))} == {"ADD", "DELETE"}


def test_bookmarks_are_remembered(objects: WatchServer, bus: Bus) -> None:
    """Else the version would get too old while nothing happens that is of interest."""
    objects.bookmarks = True
    wanted = source(filter={"prefix": "order-"})
    with fetching(wanted, bus, IDENTITY) as fetcher:
        until(lambda: any("watch" in query for query in objects.queries))
        objects.create("other")
        until(lambda: fetcher.portions == [0, 0])
    with fetching(wanted, bus, IDENTITY):
        until(lambda: objects.queries[-1].get("resourceVersion") == str(objects.version))


def test_nothing_is_read_far_ahead(objects: WatchServer, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_watch, "_MOST_AHEAD", 3)
    sizes: list[int] = []
    with fetching(source(), bus, IDENTITY, before=lambda events: sizes.append(len(events))) as fetcher:
        until(lambda: any("watch" in query for query in objects.queries))
        for number in range(20):
            objects.create(f"order-{number}")
        fetcher.wait_for(20)
    assert max(sizes) <= 3


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((403, "Forbidden", "no\nconfigmaps for you"), "the cluster answered 403 Forbidden: no configmaps for you"),
        ((500, "", ""), "the cluster answered 500"),
    ],
)
def test_a_refusal_is_told_in_one_line(
    objects: WatchServer, bus: Bus, refusal: tuple[int, str, str], message: str
) -> None:
    objects.refusal = refusal
    with fetching(source(), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error) == message
    assert TOKEN not in str(error)


def test_a_kind_that_the_cluster_does_not_know_is_told(objects: WatchServer, bus: Bus) -> None:
    with fetching(source(resource="gadgets"), bus, IDENTITY) as fetcher:
        assert str(fetcher.failure()).startswith("the cluster answered 404 NotFound: the server could not find")


def test_a_server_that_is_not_there_is_told_in_one_line(objects: WatchServer, bus: Bus) -> None:
    config = objects.kubeconfig.read_text()
    objects.kubeconfig.write_text(config.replace(str(objects._server.server_address[1]), "1"))
    with fetching(source(), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert "refused" in str(error)
    assert "\n" not in str(error)


def test_a_server_that_hangs_up_is_told_in_one_line(objects: WatchServer, bus: Bus) -> None:
    with fetching(source(), bus, IDENTITY) as fetcher:
        until(lambda: any("watch" in query for query in objects.queries))
        objects.hang_up()
        error = fetcher.failure()
    assert isinstance(error, SourceError), repr(error)
    assert str(error) == "the cluster: Response ended prematurely"


def test_that_not_all_are_remembered_is_said_once(
    objects: WatchServer, bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "MOST_KNOWN", 1)
    with caplog.at_level(logging.WARNING), fetching(source(), bus, IDENTITY) as fetcher:
        for number in range(4):
            objects.create(f"order-{number}")
            fetcher.wait_for(number + 1)
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == [
        "shop/object: there are more than 1 objects: those that go while no replica runs for long are not told of"
    ]


# --- the spec -------------------------------------------------------------------------------------------------------


def test_selectors_are_as_the_api_takes_them() -> None:
    labels = [
        {"key": "a", "value": "1"},
        {"key": "b", "operation": "!=", "value": "2"},
        {"key": "c", "operation": "in", "value": "3,4"},
        {"key": "d", "operation": "exists"},
        {"key": "e", "operation": "!"},
        {"key": "f", "operation": "gt", "value": "5"},
    ]
    fields = [{"key": "status.phase", "value": "Failed"}, {"key": "x", "operation": "!=", "value": "a,b=c"}]
    spec = ResourceSpec.model_validate({**SPEC, "group": "apps", "filter": {"labels": labels, "fields": fields}})
    assert spec.selectors == {
        "labelSelector": "a==1,b!=2,c in (3,4),d,!e,f>5",
        "fieldSelector": r"status.phase==Failed,x!=a\,b\=c",
    }
    assert spec.path == "/apis/apps/v1/namespaces/shop/configmaps"
    assert ResourceSpec.model_validate({**SPEC, "namespace": ""}).path == "/api/v1/configmaps"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eventTypes": []}, "eventTypes"),
        ({"eventTypes": ["CREATE"]}, "ADD"),
        ({"version": "apps/v1"}, "`version` is `v1`, and `apps` belongs into `group`"),
        ({"resource": "../secrets"}, "must be a Kubernetes name"),
        ({"filter": {"createdBy": "yesterday"}}, "createdBy"),
        ({"filter": {"labels": [{"key": "a", "operation": "~", "value": "b"}]}}, "operation"),
        ({"filter": {"expression": "body.("}}, "`expression`"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError, match=message.replace("(", r"\(")):
        manifest("resource", object={**SPEC, **changes})
