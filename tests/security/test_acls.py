"""What `eventbus acls` lists is enough, and none of it is too much."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Message

from eventbus import Bus, BusName, Event
from eventbus.cli.main import main
from eventbus.clock import SystemClock
from eventbus.errors import EventBusError, FatalError
from eventbus.kafka import codes
from eventbus.kafka.connection import Connection
from eventbus.kafka.fetched import Trouble, split
from eventbus.names import Kind, SensorName
from eventbus.topics import ensure_sensor_topics
from sensors import ActionCall, Sensor
from sensors.acls import Operation, Part, Permission, Resource, needs_of
from sensors.inspection import read_range
from sensors.spec.loader import load_text
from tests.security.broker import SecureBroker, User, wait_until
from tests.security.conftest import NewUser

pytestmark = pytest.mark.kafka
RUN = (Part.START, Part.MATCH, Part.JOIN, Part.INVOKE)
SLOT = "0"


MANIFEST = """\
apiVersion: eventbus.dev/v1alpha1
kind: Sensor
metadata: {name: orders}
spec:
  dependencies:
    - {name: paid, eventSourceName: shop, eventName: paid}
    - {name: packed, eventSourceName: shop, eventName: packed}
  triggers:
    - template: {name: note, conditions: paid, log: {}}
    - template: {name: ship, conditions: paid && packed, log: {}}
"""


def _permissions(name: SensorName, *parts: Part) -> list[Permission]:
    """Each once: stages of one process share what they need."""
    [manifest] = load_text(MANIFEST, "orders.yaml")
    needs = needs_of(name, manifest)
    return list(dict.fromkeys(need.permission for need in needs if need.part in parts))


class Shop:
    """A sensor whose events go through all three stages, its runner, and somebody who sends events."""

    def __init__(self, broker: SecureBroker, new_user: NewUser, namespace: str, directory: Path) -> None:
        self.file = directory / "orders.yaml"
        self.file.write_text(MANIFEST)
        self.broker = broker
        self.name = SensorName(BusName(namespace), "orders")
        self.runner = new_user("runner")
        self.sender = new_user("sender")
        self.calls: list[str] = []
        self.sensor = Sensor.of(load_text(MANIFEST, "orders.yaml")[0])
        for trigger in ("note", "ship"):
            self.sensor.action(trigger)(self._note)

    def _note(self, call: ActionCall) -> None:
        self.calls.append(call.trigger)

    def needs(self, *parts: Part) -> list[Permission]:
        return _permissions(self.name, *parts)

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
    secure_broker: SecureBroker, new_user: NewUser, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shop:
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(tmp_path))
    return Shop(secure_broker, new_user, namespace, tmp_path)


def test_what_is_listed_is_enough(shop: Shop) -> None:
    shop.broker.permit(shop.runner, shop.needs(Part.CREATE, *RUN))
    shop.broker.permit(shop.sender, shop.needs(Part.SEND))
    shop.run()
    assert sorted(shop.calls) == ["note", "ship"]


def test_without_the_right_to_create_topics_they_must_be_there(shop: Shop) -> None:
    shop.broker.permit(shop.runner, shop.needs(*RUN))
    with pytest.raises(EventBusError, match=r"creating topic .*[Aa]uthorization failed"):
        shop.run()
    shop.create_topics()
    shop.broker.permit(shop.sender, shop.needs(Part.SEND))
    shop.run()
    assert sorted(shop.calls) == ["note", "ship"]


@pytest.mark.parametrize("index", range(len(_permissions(SensorName(BusName(), "orders"), *RUN))))
def test_nothing_of_it_can_be_left_out(shop: Shop, index: int) -> None:
    shop.create_topics()
    permissions = shop.needs(*RUN)
    missing = permissions.pop(index)
    shop.broker.permit(shop.runner, permissions)
    shop.broker.permit(shop.sender, shop.needs(Part.SEND))
    assert not shop.works(), f"{missing} is not needed"


def test_who_may_not_write_stops_instead_of_burying_every_event(shop: Shop) -> None:
    shop.create_topics()
    topic = shop.name.topic(Kind.TRIGGER)
    shop.broker.permit(shop.runner, _without(shop.needs(*RUN), Permission(Resource.TOPIC, topic, Operation.WRITE)))
    shop.broker.permit(shop.sender, shop.needs(Part.SEND))
    with pytest.raises(FatalError, match=r"Topic authorization failed.*Grant this client what `eventbus acls` lists"):
        shop.run()
    with Bus.connect(shop.broker.open_address) as bus:
        topic = shop.name.topic(Kind.DLQ)
        assert bus.cluster.describe([topic])[topic] is not None
        reader = bus.cluster.reader()
        letters = read_range(reader, topic, 0, start=0, end=None, clock=SystemClock())
        assert list(letters) == []
        reader.close()


def test_who_only_reads_needs_no_group(shop: Shop, new_user: NewUser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client looks for the coordinator of its group all the same, and complains, sooner or later."""
    complaints: list[int] = []

    def noting_split(messages: list[Message]) -> tuple[list[Message], list[Trouble]]:
        records, troubles = split(messages)
        complaints.extend(trouble.error.code() for trouble in troubles)
        return records, troubles

    monkeypatch.setattr("eventbus.kafka.reader.split", noting_split)
    onlooker, topic = new_user("onlooker"), shop.name.event_topic
    shop.broker.permit(onlooker, [Permission(Resource.TOPIC, topic, Operation.READ)])
    with shop.bus(onlooker) as bus, Bus.connect(shop.broker.open_address, namespace=bus.name.namespace) as sender:
        sender.ensure(1)
        reader = bus.cluster.reader()
        reader.open(topic, 0, 0)
        wait_until(lambda: reader.read(1, 0.1) == [] and codes.GROUP_DENIED in complaints)
        sender.publish(Event.new("shop", "paid"))
        wait_until(lambda: len(reader.read(1, 0.1)) == 1)
        reader.close()


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.DESCRIBE_CONFIGS])
def test_a_sender_needs_both(shop: Shop, operation: Operation) -> None:
    shop.create_topics()
    missing = Permission(Resource.TOPIC, shop.name.event_topic, operation)
    shop.broker.permit(shop.sender, _without(shop.needs(Part.SEND), missing))
    with pytest.raises(EventBusError, match="authorization failed"), shop.bus(shop.sender) as bus:
        bus.publish(Event.new("shop", "paid"))


@pytest.mark.parametrize(
    ("part", "commands"),
    [
        (
            Part.READ,
            [
                "tail events --no-follow --from-beginning",
                "tail dlq --sensor orders --no-follow --from-beginning",
                "state FILE",
                "explain FILE",
                "dlq list orders",
            ],
        ),
        (
            Part.CONTROL,
            [
                "pause orders",
                "resume orders",
                "flush FILE ship --drop --yes",
                "dlq list orders",
                "dlq redrive orders --all",
            ],
        ),
        (Part.REPLAY, ["replay FILE --since 1h --yes"]),
        (Part.SEND, ["send --source shop --name paid"]),
    ],
)
def test_each_part_is_enough_for_its_commands(
    shop: Shop, new_user: NewUser, part: Part, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create_topics()
    shop.broker.permit(shop.runner, shop.needs(*RUN))
    shop.broker.permit(shop.sender, shop.needs(Part.SEND))
    shop.run()
    operator = new_user("operator")
    shop.broker.permit(operator, shop.needs(part))
    _use(monkeypatch, shop.broker.connection(operator), shop.name.bus)
    for command in commands:
        with pytest.raises(SystemExit) as end:
            main([str(shop.file) if word == "FILE" else word for word in command.split()])
        assert not end.value.code, command


def _use(monkeypatch: pytest.MonkeyPatch, connection: Connection, bus: BusName) -> None:
    """Let the environment say it all."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", connection.bootstrap_servers)
    monkeypatch.setenv("EVENTBUS_NAMESPACE", bus.namespace)
    for setting, value in connection.security().items():
        monkeypatch.setenv(f"EVENTBUS_KAFKA_{setting.replace('.', '_').upper()}", value)


def _without(permissions: Iterable[Permission], missing: Permission) -> list[Permission]:
    kept = [each for each in permissions if each != missing]
    assert len(kept) < len(list(permissions)), f"{missing} is not listed at all"
    return kept
