"""What `eventbus acls` lists for an event source that runs once is enough, and none of it is too much."""

from __future__ import annotations

import pytest

from eventbus import Bus, BusName
from eventbus.errors import EventBusError
from eventbus.topics import ensure_reject_topic, ensure_source_topic
from eventsources.acls import needs_of_source
from eventsources.base import SourceError, Unusable
from eventsources.journal import Journal
from sensors.acls import Part, Permission
from tests.eventsources.serving import events_on, letters_on, manifest, through_journal
from tests.security.broker import SecureBroker, User
from tests.security.conftest import NewUser

pytestmark = pytest.mark.kafka
CLOCK = manifest("calendar", "clock", tick={"interval": "1m"})
[IDENTITY] = [identity for identity, _ in CLOCK.identities()]


def _permissions(namespace: str, *parts: Part) -> list[Permission]:
    return [need.permission for need in needs_of_source(BusName(namespace), CLOCK) if need.part in parts]


def _ticks(broker: SecureBroker, user: User, namespace: str) -> None:
    """Raises what a user would be told."""
    with Bus.on(broker.connection(user), BusName(namespace)) as bus:
        for memory in (b"1", b"2"):
            journal = Journal(bus, IDENTITY)
            try:
                deliver = through_journal(bus, IDENTITY, journal)
                deliver([IDENTITY.event(memory.decode(), None), Unusable(memory.decode(), "torn", b"{")], memory)
            finally:
                journal.close()


def test_what_is_listed_is_enough(secure_broker: SecureBroker, new_user: NewUser, namespace: str) -> None:
    clock = new_user("clock")
    secure_broker.permit(clock, _permissions(namespace, Part.CREATE, Part.SOURCE))
    _ticks(secure_broker, clock, namespace)
    with Bus.connect(secure_broker.open_address, namespace=namespace) as bus:
        assert sorted(event.id for event in events_on(bus)) == ["1", "2"]
        assert len(letters_on(bus)) == 2


@pytest.mark.parametrize("index", range(len(_permissions("default", Part.SOURCE))))
def test_nothing_of_it_can_be_left_out(
    secure_broker: SecureBroker, new_user: NewUser, namespace: str, index: int
) -> None:
    with Bus.connect(secure_broker.open_address, namespace=namespace) as bus:
        bus.ensure(1)
        ensure_source_topic(bus.cluster, bus.name)
        ensure_reject_topic(bus.cluster, bus.name)
    permissions = _permissions(namespace, Part.SOURCE)
    del permissions[index]
    clock = new_user("clock")
    secure_broker.permit(clock, permissions)
    with pytest.raises((EventBusError, SourceError)):
        _ticks(secure_broker, clock, namespace)
