"""The least that Kafka must permit to an event source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eventbus.names import BusName
from eventsources.journal import transactional_id
from eventsources.receiver.listening import ReceiverSpec
from eventsources.spec import EventSourceManifest
from sensors.acls import Need, Operation, Part, Permission, Resource, on_topics
from sensors.redrive import Box


def needs_of_source(bus: BusName, manifest: EventSourceManifest) -> list[Need]:
    """Everything about one event source."""
    fetches = any(not isinstance(spec, ReceiverSpec) for _, spec in manifest.identities())
    written = [bus.event_topic, *([bus.reject_topic] if fetches else [])]
    topics = [*written, *([bus.source_topic] if manifest.once else [])]
    parts: Mapping[Part, Iterable[Permission]] = {
        Part.CREATE: on_topics(topics, Operation.CREATE),
        Part.SOURCE: [*on_topics(written, Operation.WRITE, Operation.DESCRIBE_CONFIGS), *_to_run_once(bus, manifest)],
        Part.READ: _to_look(bus) if fetches else (),
        Part.CONTROL: _to_drive_back(bus) if fetches else (),
    }
    return [Need(part, each) for part, permissions in parts.items() for each in permissions]


def _to_look(bus: BusName) -> Iterator[Permission]:
    return on_topics([bus.reject_topic], Operation.READ, Operation.DESCRIBE_CONFIGS)


def _to_drive_back(bus: BusName) -> Iterator[Permission]:
    yield from _to_look(bus)
    yield from on_topics([bus.event_topic, bus.reject_topic], Operation.WRITE)
    yield Permission(Resource.TRANSACTIONAL_ID, Box.of_sources(bus).transactional_id, Operation.WRITE)


def _to_run_once(bus: BusName, manifest: EventSourceManifest) -> Iterator[Permission]:
    if not manifest.once:
        return
    yield from on_topics([bus.source_topic], Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
    for identity, _ in manifest.identities():
        yield Permission(Resource.TRANSACTIONAL_ID, transactional_id(bus, identity), Operation.WRITE)
