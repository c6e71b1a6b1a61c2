"""The least that Kafka must permit to an event source."""

from __future__ import annotations

from collections.abc import Iterator

from eventbus.names import BusName
from eventsources.journal import transactional_id
from eventsources.spec import EventSourceManifest
from sensors.acls import READ_OUTSIDE_GROUPS, Need, Operation, Part, Permission, Resource, on_topics


def needs_of_source(bus: BusName, manifest: EventSourceManifest) -> list[Need]:
    """Everything about one event source."""
    topics = [bus.event_topic, *([bus.source_topic] if manifest.once else [])]
    created = [Need(Part.CREATE, each) for each in on_topics(topics, Operation.CREATE)]
    return created + [Need(Part.SOURCE, each) for each in _to_run(bus, manifest)]


def _to_run(bus: BusName, manifest: EventSourceManifest) -> Iterator[Permission]:
    yield from on_topics([bus.event_topic], Operation.WRITE, Operation.DESCRIBE_CONFIGS)
    if not manifest.once:
        return
    yield from on_topics([bus.source_topic], Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
    for identity, _ in manifest.identities():
        yield Permission(Resource.TRANSACTIONAL_ID, transactional_id(bus, identity), Operation.WRITE)
    yield READ_OUTSIDE_GROUPS
