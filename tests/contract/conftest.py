"""Every test of the contract runs on both adapters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus.memory import MemoryCluster
from tests.contract.lab import Lab


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def lab(request: pytest.FixtureRequest, namespace: str) -> Iterator[Lab]:
    cluster = MemoryCluster() if request.param == "memory" else request.getfixturevalue("kafka_cluster")
    lab = Lab(cluster, namespace)
    yield lab
    lab.close()
