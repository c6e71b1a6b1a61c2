"""The event source `resource` on a real Kubernetes API server: the promises of `tests/eventsources`, and more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from e2e.conftest import Kubernetes
from eventbus import Bus
from eventbus.clock import SystemClock
from tests.eventsources.fetching import running
from tests.eventsources.resource_contract import Objects, ResourceContract, told
from tests.eventsources.serving import events_on, manifest

OUTAGE = 60.0
RECOVERY = 90.0
"""A source that has failed for a minute may wait half a minute before it tries again."""


class ConfigMaps(Objects):
    """Made by the official client."""

    def __init__(self, kubernetes: Kubernetes, namespace: str) -> None:
        self.namespace = namespace
        self.kubeconfig = Path(kubernetes.kubeconfig)
        self._kubernetes = kubernetes
        self._core = kubernetes.core()

    def create(self, name: str, text: str = "", **labels: str) -> None:
        body = {"metadata": {"name": name, "labels": labels}, "data": {"text": text}}
        self._core.create_namespaced_config_map(self.namespace, body)

    def change(self, name: str, text: str) -> None:
        self._core.patch_namespaced_config_map(name, self.namespace, {"data": {"text": text}})

    def delete(self, name: str) -> None:
        self._core.delete_namespaced_config_map(name, self.namespace)

    def forget(self) -> None:
        self._kubernetes.cluster().forget_history()


@pytest.fixture
def objects(kubernetes: Kubernetes, kubernetes_namespace: str) -> ConfigMaps:
    return ConfigMaps(kubernetes, kubernetes_namespace)


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as made:
        made.ensure(1)
        yield made


class TestRealApiServer(ResourceContract):
    """See there."""

    def test_labels_and_fields_are_selected_as_the_server_understands_them(self, objects: Objects, bus: Bus) -> None:
        labels = [
            {"key": "shop", "operation": "in", "value": "eu,us"},
            {"key": "team", "operation": "exists"},
            {"key": "old", "operation": "!"},
            {"key": "size", "operation": "gt", "value": "5"},
        ]
        wanted = {"labels": labels, "fields": [{"key": "metadata.name", "operation": "!=", "value": "order-2"}]}
        for name, changes in {
            "order-1": {},
            "order-2": {},
            "order-3": {"shop": "asia"},
            "order-4": {"old": "yes"},
            "order-5": {"size": "5"},
        }.items():
            objects.create(name, **{"shop": "eu", "team": "till", "size": "6", **changes})
        with running(manifest("resource", object=self.spec(objects, filter=wanted)), bus):
            _wait(lambda: events_on(bus))
            objects.delete("order-1")
            _wait(lambda: len(events_on(bus)) == 2)
        assert told(events_on(bus)) == [("ADD", "order-1"), ("DELETE", "order-1")]

    @pytest.mark.timeout(300)
    def test_an_api_server_that_is_dead_for_a_minute_costs_no_event(
        self, objects: Objects, bus: Bus, kubernetes: Kubernetes
    ) -> None:
        cluster = kubernetes.cluster()
        with running(manifest("resource", object=self.spec(objects)), bus):
            for number in range(10):
                objects.create(f"order-{number}")
            _wait(lambda: len(events_on(bus)) == 10)
            for number in range(10, 20):
                objects.create(f"order-{number}")  # nobody knows which of them the source has heard of
            cluster.kill_api_server()
            Flag().wait(OUTAGE)
            cluster.start_api_server()
            objects.delete("order-3")
            objects.create("order-new")
            objects.change("order-4", "b")
            _wait(lambda: len(events_on(bus)) >= 23)
        events = events_on(bus)
        made = {("ADD", f"order-{number}") for number in range(20)}
        after = {("ADD", "order-new"), ("DELETE", "order-3"), ("UPDATE", "order-4")}
        assert set(told(events)) == made | after
        assert len(events) == len({event.id for event in events})


def _wait(condition: Any) -> None:
    clock = SystemClock()
    end = clock.monotonic() + RECOVERY
    while not condition():
        assert clock.monotonic() < end, "it does not happen"
        Flag().wait(0.1)
