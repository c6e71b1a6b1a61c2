"""Every test here runs the whole sensor, on the in-memory bus and on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus import Bus, BusName
from eventbus.memory import MemoryCluster
from tests.pipeline.world import World


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest, namespace: str) -> Iterator[World]:
    servers = request.getfixturevalue("kafka_bootstrap_servers") if request.param == "kafka" else ""
    cluster = request.getfixturevalue("kafka_cluster") if servers else MemoryCluster()
    bus = Bus(cluster, BusName(namespace, "bus"), bootstrap_servers=servers)
    with World(bus) as world:
        yield world
