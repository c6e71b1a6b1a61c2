"""One secure broker for all tests here; each has users of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from eventbus.errors import EventBusError
from eventbus.kafka import KafkaCluster
from tests.security.broker import SecureBroker, User, wait_until

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
