"""What an EventSource manifest may contain: argo-events' shape, with one section for every kind of source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, create_model

from eventsources.base import Identity, SourceSpec
from eventsources.receiver.listening import DEFAULT_PORT, ReceiverSpec
from eventsources.sources import REFUSED, SOURCES
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import CountFromOne, EventReference, KubernetesName, StringMap
from sensors.spec.loader import Reader
from sensors.spec.manifest import Manifest
from sensors.spec.models import SensorManifest
from sensors.spec.podtemplate import KubernetesObject, PodTemplate


class EventSourceSpecBase(SpecModel):
    """Where events come from: sections by kind, in each of them specs by the name of the event."""

    refused: ClassVar[Mapping[str, str]] = REFUSED

    eventBusName: KubernetesName = "default"
    replicas: CountFromOne = 1
    """Of sources that must run once, one replica works and the others wait."""
    loggingFields: StringMap = Field(default={})
    """Every log line of the source carries these fields: as members of JSON lines, at the end of others."""
    template: PodTemplate | None = None
    service: KubernetesObject | None = None
    """The Kubernetes Service in front of the pods."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        kinds = [kind for kind in SOURCES if get(data, kind)]
        if isinstance(data, Mapping) and not kinds and not any(kind in data for kind in REFUSED):
            yield Flaw((), f"there is no source: add one of {', '.join(f'`{kind}`' for kind in sorted(SOURCES))}")
        for kind in kinds:
            lacking = SOURCES[kind].lacking()
            if lacking is not None:
                yield Flaw((kind,), lacking, about_key=True)
        names = [(kind, name) for kind in kinds if isinstance(get(data, kind), Mapping) for name in get(data, kind)]
        elected = {(kind, name): SOURCES[kind].runs_once(get(data, kind, name)) for kind, name in names}
        if {True, False} <= set(elected.values()):
            once = next(place for place, must in elected.items() if must)
            message = f"`{once[0]}` runs in one replica at a time and other sources in all: make two EventSources"
            yield Flaw(once, message, about_key=True)
        owners: dict[str, str] = {}
        for kind, name in names:
            if owners.setdefault(name, kind) != kind:
                yield Flaw((kind, name), f"two events of this source are called `{name}`", about_key=True)
        yield from _collisions(data, names)

    def sources(self) -> Iterator[tuple[str, str, SourceSpec]]:
        """Kind, name of the event, spec."""
        for kind in SOURCES:
            for name, spec in getattr(self, kind).items():
                yield kind, name, spec


def _collisions(data: Any, names: list[tuple[str, str]]) -> Iterator[Flaw]:
    taken: dict[tuple[str, str], str] = {}
    for kind, name in names:
        nested = ("webhook",) if get(data, kind, name, "webhook") else ()
        listening = get(data, kind, name, *nested)
        path, port = get(listening, "endpoint"), get(listening, "port")
        where = path, str(DEFAULT_PORT if port is None else port)
        if isinstance(path, str) and taken.setdefault(where, name) != name:
            message = f"`{path}` is the path of the event `{taken[where]}` already"
            yield Flaw((kind, name, *nested, "endpoint"), message)


if TYPE_CHECKING:

    class EventSourceSpec(EventSourceSpecBase):
        """See below."""

else:
    EventSourceSpec = create_model(
        "EventSourceSpec",
        __base__=EventSourceSpecBase,
        __doc__=EventSourceSpecBase.__doc__,
        **{kind: (dict[EventReference, each.spec], Field(default={})) for kind, each in SOURCES.items()},
    )


class EventSourceManifest(Manifest):
    """An EventSource, as it is written in a YAML file or kept by Kubernetes."""

    called = "EventSource"
    plural = "event sources"

    kind: Literal["EventSource"]
    spec: EventSourceSpec

    @property
    def once(self) -> bool:
        """Whether one replica works while the others wait."""
        return any(SOURCES[kind].runs_once(spec) for kind, _, spec in self.spec.sources())

    def identities(self) -> Iterator[tuple[Identity, SourceSpec]]:
        for kind, name, spec in self.spec.sources():
            yield Identity(self.name, name, kind), spec

    def ports(self) -> set[int]:
        """Where it will listen, but for ports that are any free one."""
        specs = [spec for _, _, spec in self.spec.sources()]
        return {spec.listening.port for spec in specs if isinstance(spec, ReceiverSpec)} - {0}

    def advice(self) -> Iterator[Flaw]:
        for kind, name, spec in self.spec.sources():
            for flaw in spec.advice():
                yield Flaw(("spec", kind, name, *flaw.path), flaw.message)


EVENT_SOURCES = Reader(EventSourceManifest)
MANIFESTS: Reader[Manifest] = Reader(SensorManifest, EventSourceManifest)
"""Whatever `eventbus run` can run."""
