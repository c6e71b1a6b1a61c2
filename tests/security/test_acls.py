"""What `eventbus acls` lists is enough, and none of it is too much."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from eventbus import Bus, BusName, Event
from eventbus.errors import EventBusError
from eventbus.names import Kind, SensorName, Stage
from eventbus.topics import ensure_sensor_topics
from sensors import ActionCall, Sensor
from sensors.acls import Operation, Part, Permission, Resource, needs_of
from tests.security.broker import SecureBroker, User
from tests.security.conftest import NewUser

pytestmark = pytest.mark.kafka
RUN = (Part.START, Part.MATCH, Part.JOIN, Part.INVOKE)
SLOT = "0"


class Shop:
    """A sensor whose events go through all three stages, its runner, and somebody who sends events."""

    def __init__(self, broker: SecureBroker, new_user: NewUser, namespace: str) -> None:
        self.broker = broker
        self.name = SensorName(BusName(namespace), "orders")
        self.runner = new_user("runner")
        self.sender = new_user("sender")
        self.calls: list[str] = []
        self.sensor = Sensor("orders", {"paid": ("shop", "paid"), "packed": ("shop", "packed")})
        self.sensor.trigger("note", "paid")(self._note)
        self.sensor.trigger("ship", "paid && packed")(self._note)

    def _note(self, call: ActionCall) -> None:
        self.calls.append(call.trigger)

    def needs(self, *parts: Part) -> list[Permission]:
        needs = needs_of(self.name, self.sensor.manifest)
        return list(dict.fromkeys(need.permission for need in needs if need.part in parts))

    def bus(self, user: User) -> Bus:
        return Bus.on(self.broker.connection(user), self.name.bus)

    def create_topics(self) -> None:
        with Bus.connect(self.broker.open_address) as bus:
            ensure_sensor_topics(bus.cluster, self.name, 1)

    def works(self) -> bool:
        try:
            self.run(timeout=10.0)
        except EventBusError:
            return False
        return sorted(self.calls) == ["note", "ship"]

    def run(self, timeout: float = 60.0) -> None:
        """Raises what a user would be told."""
        with self.bus(self.runner) as home, self.sensor.start(home, slot=SLOT) as replica:
            replica.wait_ready(timeout)
            with self.bus(self.sender) as bus:
                bus.publish(Event.new("shop", "paid"), Event.new("shop", "packed"))
            replica.settle(timeout)


@pytest.fixture
def shop(
    secure_broker: SecureBroker, new_user: NewUser, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> Shop:
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(tmp_path))
    return Shop(secure_broker, new_user, namespace)


def test_what_is_listed_is_enough(shop: Shop) -> None:
    shop.broker.permit(shop.runner, shop.needs(Part.CREATE, *RUN))
    shop.broker.permit(shop.sender, shop.needs(Part.SEND))
    shop.run()
    assert sorted(shop.calls) == ["note", "ship"]


def test_without_the_right_to_create_topics_they_must_be_there(shop: Shop) -> None:
    shop.broker.permit(shop.runner, shop.needs(*RUN))
    with pytest.raises(EventBusError, match=r"creating topic .*authorization failed"):
        shop.run()
    shop.create_topics()
    shop.broker.permit(shop.sender, shop.needs(Part.SEND))
    shop.run()
    assert sorted(shop.calls) == ["note", "ship"]


def _runner_lacks(name: SensorName) -> dict[str, Permission]:
    return {
        "read events": Permission(Resource.TOPIC, name.event_topic, Operation.READ),
        "read state": Permission(Resource.TOPIC, name.topic(Kind.STATE), Operation.READ),
        "read control": Permission(Resource.TOPIC, name.control_topic, Operation.READ),
        "write triggers": Permission(Resource.TOPIC, name.topic(Kind.TRIGGER), Operation.WRITE),
        "write invocations": Permission(Resource.TOPIC, name.topic(Kind.INVOCATION), Operation.WRITE),
        "look at settings": Permission(Resource.TOPIC, name.topic(Kind.DLQ), Operation.DESCRIBE_CONFIGS),
        "join the group": Permission(Resource.GROUP, name.group(Stage.JOIN), Operation.READ),
        "write in transactions": Permission(
            Resource.TRANSACTIONAL_ID, name.transactional_id(Stage.INVOKE, ""), Operation.WRITE, prefixed=True
        ),
        "read outside groups": Permission(Resource.GROUP, "eventbus", Operation.DESCRIBE),
    }


@pytest.mark.parametrize("missing", sorted(_runner_lacks(SensorName(BusName(), "any"))))
def test_nothing_of_it_can_be_left_out(shop: Shop, missing: str) -> None:
    shop.create_topics()
    shop.broker.permit(shop.runner, _without(shop.needs(*RUN), _runner_lacks(shop.name)[missing]))
    shop.broker.permit(shop.sender, shop.needs(Part.SEND))
    assert not shop.works()


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.DESCRIBE_CONFIGS])
def test_a_sender_needs_both(shop: Shop, operation: Operation) -> None:
    shop.create_topics()
    missing = Permission(Resource.TOPIC, shop.name.event_topic, operation)
    shop.broker.permit(shop.sender, _without(shop.needs(Part.SEND), missing))
    with pytest.raises(EventBusError, match="authorization failed"), shop.bus(shop.sender) as bus:
        bus.publish(Event.new("shop", "paid"))


def _without(permissions: Iterable[Permission], missing: Permission) -> list[Permission]:
    kept = [each for each in permissions if each != missing]
    assert len(kept) < len(list(permissions)), f"{missing} is not listed at all"
    return kept
