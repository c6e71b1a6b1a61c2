"""What the event source `resource` promises. Run against our own server and, in `e2e`, against a real API server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eventbus import Bus, Event
from eventsources.base import Identity
from eventsources.sources.resource import ResourceSource, ResourceSpec
from tests.eventsources.fetching import fetching, killed, running, until
from tests.eventsources.relay import Relay, relayed
from tests.eventsources.serving import events_on, manifest, metric

IDENTITY = Identity("shop", "object", "resource")
ALL = ["ADD", "UPDATE", "DELETE"]


class Objects(ABC):
    """ConfigMaps of one namespace."""

    namespace: str
    kubeconfig: Path

    @abstractmethod
    def create(self, name: str, text: str = "", **labels: str) -> None: ...

    @abstractmethod
    def change(self, name: str, text: str) -> None: ...

    @abstractmethod
    def delete(self, name: str) -> None: ...

    @abstractmethod
    def forget(self) -> None:
        """What has happened until now cannot be watched any more."""


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.json()["type"], event.json()["body"]["metadata"]["name"]) for event in events]


def texts(events: list[Event]) -> list[str]:
    return [event.json()["body"]["data"]["text"] for event in events]


class ResourceContract:
    """Needs a fixture `objects`."""

    @pytest.fixture(autouse=True)
    def relay(self, objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
        relay = relayed(objects.kubeconfig, tmp_path / "relayed")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "relayed"))
        yield relay
        relay.cut()

    def spec(self, objects: Objects, **changes: Any) -> dict[str, Any]:
        collection = {"namespace": objects.namespace, "version": "v1", "resource": "configmaps"}
        return {**collection, "eventTypes": ALL, "filter": {"prefix": "order-"}, **changes}

    def source(self, objects: Objects, **changes: Any) -> ResourceSource:
        return ResourceSource(ResourceSpec.model_validate(self.spec(objects, **changes)))

    def test_what_an_event_looks_like(self, objects: Objects, bus: Bus) -> None:
        objects.create("order-1", "hello", shop="eu")
        with fetching(self.source(objects, metadata={"team": "till"}), bus, IDENTITY) as fetcher:
            [event] = fetcher.wait_for(1)
        data = event.json()
        body = data.pop("body")
        assert data == {
            "type": "ADD",
            "group": "",
            "version": "v1",
            "resource": "configmaps",
            "metadata": {"team": "till"},
        }
        assert (body["data"], body["metadata"]["labels"]) == ({"text": "hello"}, {"shop": "eu"})
        assert (event.source, event.subject, event.type) == ("shop", "object", "resource")
        assert event.id == f"{body['metadata']['uid']} {body['metadata']['resourceVersion']} ADD"

    def test_objects_are_made_change_and_go(self, objects: Objects, bus: Bus) -> None:
        objects.create("order-0")
        with fetching(self.source(objects), bus, IDENTITY) as fetcher:
            fetcher.wait_for(1)
            objects.create("order-1", "a")
            objects.change("order-1", "b")
            objects.change("order-1", "c")
            objects.delete("order-1")
            events = fetcher.wait_for(5)[1:]
        assert told(events) == [("ADD", "order-1"), ("UPDATE", "order-1"), ("UPDATE", "order-1"), ("DELETE", "order-1")]
        assert texts(events) == ["a", "b", "c", "c"]
        assert len({event.id for event in events}) == 4

    def test_only_what_is_wanted(self, objects: Objects, bus: Bus) -> None:
        labels = [{"key": "shop", "value": "eu"}]
        wanted = {"prefix": "order-", "labels": labels, "expression": 'body.data.text != "no"'}
        objects.create("order-1", shop="eu")
        with running(manifest("resource", object=self.spec(objects, eventTypes=["ADD", "DELETE"], filter=wanted)), bus):
            until(lambda: len(events_on(bus)) == 1)
            objects.create("order-2", shop="us")
            objects.create("order-3", "no", shop="eu")
            objects.create("other", shop="eu")
            objects.change("order-1", "yes")
            objects.delete("order-1")
            until(lambda: len(events_on(bus)) == 2)
        assert told(events_on(bus)) == [("ADD", "order-1"), ("DELETE", "order-1")]

    def test_the_time_of_their_making_may_matter(self, objects: Objects, bus: Bus) -> None:
        objects.create("order-old")
        moment = datetime.now(UTC) + timedelta(seconds=1)
        until(lambda: datetime.now(UTC) > moment)
        early = {"prefix": "order-", "createdBy": (moment - timedelta(seconds=1)).isoformat()}
        with (
            fetching(self.source(objects, filter={"prefix": "order-", "afterStart": True}), bus, IDENTITY) as new,
            fetching(self.source(objects, filter=early), bus, Identity("shop", "early", "resource")) as old,
        ):
            until(lambda: datetime.now(UTC) > moment + timedelta(seconds=1))
            objects.create("order-new")
            objects.change("order-old", "again")
            assert told(new.wait_for(1)) == [("ADD", "order-new")]
            assert told(old.wait_for(2)) == [("ADD", "order-old"), ("UPDATE", "order-old")]

    def test_whoever_goes_on_misses_nothing_and_repeats_nothing(self, objects: Objects, bus: Bus) -> None:
        objects.create("order-1", "a")
        objects.create("order-2", "a")
        with fetching(self.source(objects), bus, IDENTITY) as fetcher:
            fetcher.wait_for(2)
        objects.change("order-1", "b")
        objects.change("order-1", "c")
        objects.create("order-3", "brief")
        objects.delete("order-3")
        objects.delete("order-2")
        with fetching(self.source(objects), bus, IDENTITY) as fetcher:
            events = fetcher.wait_for(5)
        assert told(events) == [
            ("UPDATE", "order-1"),
            ("UPDATE", "order-1"),
            ("ADD", "order-3"),
            ("DELETE", "order-3"),
            ("DELETE", "order-2"),
        ]
        assert texts(events) == ["b", "c", "brief", "brief", "a"]

    def test_what_a_killed_process_did_not_deliver_is_told_by_the_next(self, objects: Objects, bus: Bus) -> None:
        objects.create("order-1")
        with fetching(self.source(objects), bus, IDENTITY, before=killed) as fetcher:
            fetcher.failure()
        with fetching(self.source(objects), bus, IDENTITY) as fetcher:
            fetcher.wait_for(1)
        objects.change("order-1", "b")
        with fetching(self.source(objects), bus, IDENTITY, before=killed) as fetcher:
            fetcher.failure()
        with fetching(self.source(objects), bus, IDENTITY) as fetcher:
            assert told(fetcher.wait_for(1)) == [("UPDATE", "order-1")]

    def test_what_a_killed_process_did_deliver_is_not_told_again(self, objects: Objects, bus: Bus) -> None:
        objects.create("order-1")
        with fetching(self.source(objects), bus, IDENTITY, after=killed) as fetcher:
            fetcher.failure()
        objects.create("order-2")
        with fetching(self.source(objects), bus, IDENTITY) as fetcher:
            assert told(fetcher.wait_for(1)) == [("ADD", "order-2")]

    def test_a_server_that_is_away_costs_no_event(self, objects: Objects, bus: Bus, relay: Relay) -> None:
        shop = manifest("resource", object=self.spec(objects))
        with running(shop, bus) as runner:
            objects.create("order-1", "a")
            until(lambda: len(events_on(bus)) == 1)
            relay.cut()
            objects.change("order-1", "b")
            objects.create("order-2", "a")
            objects.delete("order-2")
            until(lambda: metric(runner, "eventbus_source_restarts_total", eventsource="shop", event="object"))
            relay.mend()
            until(lambda: len(events_on(bus)) == 4)
        assert told(events_on(bus)) == [
            ("ADD", "order-1"),
            ("UPDATE", "order-1"),
            ("ADD", "order-2"),
            ("DELETE", "order-2"),
        ]

    def test_what_the_server_has_forgotten_is_found_by_comparison(self, objects: Objects, bus: Bus) -> None:
        for name in ("order-same", "order-changed", "order-gone"):
            objects.create(name, "a")
        with fetching(self.source(objects), bus, IDENTITY) as fetcher:
            before = {event.json()["body"]["metadata"]["name"]: event for event in fetcher.wait_for(3)}
        objects.change("order-changed", "b")
        objects.change("order-changed", "c")
        objects.delete("order-gone")
        objects.create("order-new", "a")
        objects.create("order-brief", "a")
        objects.delete("order-brief")
        objects.forget()
        with fetching(self.source(objects), bus, IDENTITY) as fetcher:
            events = fetcher.wait_for(3)
            objects.change("order-same", "b")
            assert told(fetcher.wait_for(4))[3:] == [("UPDATE", "order-same")]
        found = {event.json()["body"]["metadata"]["name"]: event for event in events[:3]}
        assert {name: event.json()["type"] for name, event in found.items()} == {
            "order-changed": "UPDATE",
            "order-new": "ADD",
            "order-gone": "DELETE",
        }
        assert found["order-changed"].json()["body"]["data"] == {"text": "c"}
        gone = found["order-gone"].json()["body"]
        known = before["order-gone"].json()["body"]["metadata"]
        assert gone == {"metadata": {key: known[key] for key in ("name", "namespace", "uid", "resourceVersion")}}
