"""One secure broker for all tests here; each has users of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventbus import Bus, BusName, Event
from eventbus.errors import EventBusError, FatalError
from eventbus.kafka import KafkaCluster
from eventbus.kafka.connection import Connection
from tests.security.broker import SecureBroker, User, wait_until
from tests.security.manifests import Settings

NewUser = Callable[[str], User]


@pytest.fixture(scope="session")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("certificates")) as broker:
        yield broker


@pytest.fixture
def new_user(secure_broker: SecureBroker, namespace: str) -> NewUser:
    """Makes somebody whom the broker lets in, and who may do nothing yet."""

    def make(name: str) -> User:
        user = User(f"{namespace}-{name}")
        secure_broker.admit(user)
        wait_until(lambda: _is_let_in(secure_broker, user))
        return user

    return make


NewSettings = Callable[..., Settings]


@pytest.fixture
def new_settings(secure_broker: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewSettings:
    """Makes the manifest of a listener."""
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))

    def make(listener: str = "GOOD") -> Settings:
        return Settings(tmp_path, secure_broker.address(listener), secure_broker.authority)

    return make


def complaint(connection: Connection) -> EventBusError:
    """What somebody gets to read who only wants to publish an event."""
    with pytest.raises(EventBusError) as caught, Bus.on(connection, BusName("shop")) as bus:
        bus.publish(Event.new("shop", "order"))
    assert "\n" not in str(caught.value)
    return caught.value


def is_let_in(cluster: KafkaCluster) -> bool:
    """Whether the broker takes the client for whom it says it is; it is told that it may do nothing."""
    with pytest.raises(FatalError) as caught:
        cluster.describe(["shop-default"])
    return "authorization failed" in str(caught.value)


def _is_let_in(broker: SecureBroker, user: User) -> bool:
    """Brokers learn of a new password a moment after the controller has taken it."""
    cluster = KafkaCluster(broker.connection(user))
    try:
        cluster.describe(["nothing"])
    except EventBusError as error:
        return "authorization" in str(error)
    finally:
        cluster.close()
    return True
