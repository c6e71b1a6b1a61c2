"""What sources that fetch are tested with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus import Bus
from tests.actions.conftest import certificate, foreign_certificate, secret, start_nats
from tests.eventsources.redis_server import RedisServer

__all__ = ["bus", "certificate", "foreign_certificate", "redis_server", "secret", "start_nats"]


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as made:
        made.ensure(1)
        yield made


@pytest.fixture
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.close()
