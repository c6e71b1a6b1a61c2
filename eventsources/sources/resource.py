"""Events of Kubernetes objects: they are made, they change, they go.

A watch tells every change once, from a version on. That version is remembered with the events, so whoever goes on
misses nothing and repeats nothing: not after a restart, and not when the API server was away. Only when nobody was
there for longer than the server keeps its history (some minutes), it has forgotten what came next, and says so (410).

Then all objects are listed and compared with those that were last told of, which are remembered, too. So what came,
what is different and what went is found. What came and went in between is not; of several changes there is one event,
with the newest state; and of an object that went, only its name and the like are known. More than 5,000 objects are not
remembered: then those that went are not found, and what is different is told as if it were new.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec
from pydantic import AwareDatetime, Field

from eventbus.events import Event
from eventsources.base import Context, EventFilter, SourceSpec, Stop
from eventsources.sources.resource_watch import Collection, Ended, Expired, Object, Told
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Bool, KubernetesName, Text

MOST_AT_ONCE = 500
"""Events that are delivered in one go."""
MOST_KNOWN = 5000
"""Objects. All that is known of them, some 100 bytes each, is written with every delivery."""
_WAIT_SECONDS = 0.2

EventType: TypeAlias = Literal["ADD", "UPDATE", "DELETE"]
_TYPES: Mapping[Told, EventType] = {"ADDED": "ADD", "MODIFIED": "UPDATE", "DELETED": "DELETE"}
_WORDS = frozenset({"exists", "!"})
_SETS = frozenset({"in", "notin"})
_SIGNS = {"gt": ">", "lt": "<"}

log = logging.getLogger("eventbus.source")


class LabelSelector(SpecModel):
    """One condition on the labels of an object."""

    key: Text
    operation: Literal["", "=", "==", "!=", "in", "notin", "exists", "!", "gt", "lt"] = "=="
    value: Text = ""
    """`in` and `notin` take several, with commas between them; `exists` and `!` take none."""

    def __str__(self) -> str:
        if self.operation in _WORDS:
            return f"!{self.key}" if self.operation == "!" else self.key
        if self.operation in _SETS:
            return f"{self.key} {self.operation} ({self.value})"
        return f"{self.key}{_SIGNS.get(self.operation, self.operation or '==')}{self.value}"


class FieldSelector(SpecModel):
    """One condition on a field of an object, such as `status.phase`. Which ones it may be about depends on its kind."""

    key: Text
    operation: Literal["", "=", "==", "!="] = "=="
    value: Text = ""

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.key}{self.operation or '=='}{escaped}"


class ResourceFilter(EventFilter):
    """Which objects; and, as with every source, by an `expression`, which of their events."""

    expression: Text = "true"
    """As in a sensor's `exprs`; names reach into the data: `body.status.phase == "Failed"`."""
    prefix: Text = ""
    """How the object's name begins."""
    labels: tuple[LabelSelector, ...] = ()
    """All of them must hold."""
    fields: tuple[FieldSelector, ...] = ()
    """All of them must hold."""
    createdBy: AwareDatetime | None = None
    """Only objects that were made at this time or before."""
    afterStart: Bool = False
    """Only objects that were made since this event source has begun: for the first time, and not at a restart."""


class ResourceSpec(SourceSpec):
    """Something happens to objects of a Kubernetes cluster."""

    namespace: KubernetesName | Literal[""] = ""
    """Empty: all namespaces, or objects that are in none."""
    group: KubernetesName | Literal[""] = ""
    """Empty: the core group, that of Pods and ConfigMaps."""
    version: KubernetesName
    resource: KubernetesName
    """The plural, in lower case: `configmaps`."""
    eventTypes: tuple[EventType, ...] = Field(min_length=1)
    filter: ResourceFilter | None = None

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        version = get(data, "version")
        if isinstance(version, str) and "/" in version:
            group, _, name = version.partition("/")
            yield Flaw(("version",), f"`version` is `{name}`, and `{group}` belongs into `group`")

    @property
    def path(self) -> str:
        """Where the API keeps the objects."""
        root = f"/apis/{self.group}" if self.group else "/api"
        where = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}/{self.version}{where}/{self.resource}"

    @property
    def selectors(self) -> Mapping[str, str]:
        """As the API takes them."""
        wanted = self.filter or ResourceFilter()
        return {
            "labelSelector": ",".join(map(str, wanted.labels)),
            "fieldSelector": ",".join(map(str, wanted.fields)),
        }

    @property
    def selection(self) -> str:
        """All that decides which objects it is about."""
        wanted = self.filter or ResourceFilter()
        parts = (self.path, *self.selectors.values(), wanted.prefix, str(wanted.createdBy), str(wanted.afterStart))
        return "\n".join(parts)


class Known(msgspec.Struct, frozen=True, array_like=True):
    """What must be known of an object to tell that it went."""

    version: str
    namespace: str
    name: str

    @classmethod
    def of(cls, found: Object) -> Known:
        return cls(*(_metadata(found, name) for name in ("resourceVersion", "namespace", "name")))

    def remains(self, uid: str) -> Object:
        """What is left of it."""
        metadata = {"name": self.name, "namespace": self.namespace, "uid": uid, "resourceVersion": self.version}
        return {"metadata": {key: value for key, value in metadata.items() if value}}


class Memory(msgspec.Struct):
    """What a successor has to know."""

    selection: str
    """Which objects it is about. When a manifest wants others, it is worth nothing."""
    since: int
    """When the source has begun with them, for the first time. Seconds since 1970."""
    version: str = ""
    """All up to here is told; empty while the objects were never listed."""
    known: dict[str, Known] | None = msgspec.field(default_factory=dict)
    """Objects by their uid; None where they are too many."""


class Change(msgspec.Struct, frozen=True):
    type: EventType
    object: Object

    @property
    def id(self) -> str:
        return f"{_uid(self.object)} {_metadata(self.object, 'resourceVersion')} {self.type}"


class Chronicle:
    """What was told of which objects, and what there is to tell. Knows no network and no clock."""

    def __init__(self, spec: ResourceSpec, remembered: bytes | None, now: int) -> None:
        self._types = frozenset(spec.eventTypes)
        self._filter = spec.filter or ResourceFilter()
        memory = None if remembered is None else msgspec.msgpack.decode(remembered, type=Memory)
        anew = memory is None or memory.selection != spec.selection
        self._memory = Memory(spec.selection, now) if anew or memory is None else memory
        self._listed: dict[str, Known] | None = None

    @property
    def version(self) -> str:
        """From which on to watch; empty where there is none."""
        return self._memory.version

    @property
    def knows_all(self) -> bool:
        return self._memory.known is not None

    def remembered(self) -> bytes:
        return msgspec.msgpack.encode(self._memory)

    def told(self, type: Told, found: Object) -> Iterator[Change]:
        """One line of a watch."""
        self._memory.version = _metadata(found, "resourceVersion")
        if type != "BOOKMARK" and self._concerns(found):
            self._note(_TYPES[type], found)
            yield from self._wanted(_TYPES[type], found)

    # --- a list -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._listed = {}

    def listed(self, objects: Iterable[Object]) -> Iterator[Change]:
        """Some of all objects. The version stays what it was: should this end here, it has to be done again."""
        for found in objects:
            if not self._concerns(found):
                continue
            type = self._difference(found)
            self._listed = _with(self._listed, found)
            if type is not None:
                self._note(type, found)
                yield from self._wanted(type, found)

    def gone(self) -> Iterator[Change]:
        """After all of them: what is known and was not among them."""
        listed, known = self._listed, self._memory.known
        if listed is not None and known is not None:
            for uid in [each for each in known if each not in listed]:
                yield from self._wanted("DELETE", known.pop(uid).remains(uid))

    def end(self, version: str) -> None:
        """The list was as things were at this version."""
        self._memory.version, self._memory.known, self._listed = version, self._listed, None

    def _difference(self, found: Object) -> EventType | None:
        """What must have happened since it was last told of. Where that is not known, it is new."""
        version = _metadata(found, "resourceVersion")
        if self._memory.known is None:
            return None if _not_after(version, self._memory.version) else "ADD"
        known = self._memory.known.get(_uid(found))
        if known is None:
            return "ADD"
        return None if known.version == version else "UPDATE"

    # --- both -------------------------------------------------------------------------------------------------------

    def _concerns(self, found: Object) -> bool:
        """By what never changes about an object: of others nothing need be known."""
        wanted, created = self._filter, _created(found)
        return (
            _metadata(found, "name").startswith(wanted.prefix)
            and (wanted.createdBy is None or created is None or created <= wanted.createdBy.timestamp())
            and (not wanted.afterStart or created is None or created >= self._memory.since)
        )

    def _note(self, type: EventType, found: Object) -> None:
        if type != "DELETE":
            self._memory.known = _with(self._memory.known, found)
        elif self._memory.known is not None:
            self._memory.known.pop(_uid(found), None)

    def _wanted(self, type: EventType, found: Object) -> Iterator[Change]:
        if type in self._types:
            yield Change(type, found)


class ResourceSource:
    """Lists once, then watches."""

    def __init__(self, spec: ResourceSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        collection = Collection(self._spec.path, self._spec.selectors)
        try:
            _Session(self._spec, context, collection).run(stop)
        finally:
            collection.close()


class _Session:
    """While there is one connection."""

    def __init__(self, spec: ResourceSpec, context: Context, collection: Collection) -> None:
        self._spec = spec
        self._context = context
        self._collection = collection
        self._chronicle = Chronicle(spec, context.remembered, context.clock.now_ms() // 1000)
        self._complete = True

    def run(self, stop: Stop) -> None:
        expired = not self._chronicle.version
        while not stop.is_set():
            try:
                if expired:
                    self._list(stop)
                    expired = False
                else:
                    self._watch(stop)
            except Expired:
                log.info("%s: the cluster has forgotten what came next: all objects are compared", self._name)
                expired = True
            stop.wait(_WAIT_SECONDS)  # nobody is asked without pause, whatever the answers are

    @property
    def _name(self) -> str:
        return str(self._context.identity)

    def _list(self, stop: Stop) -> None:
        self._chronicle.begin()
        version = ""
        for page in self._collection.pages():
            if stop.is_set():
                return
            version = page.version
            self._deliver(self._chronicle.listed(page.objects))
        self._deliver(self._chronicle.gone())
        self._chronicle.end(version)
        self._remember([])

    def _watch(self, stop: Stop) -> None:
        with self._collection.watch(self._chronicle.version) as watch, suppress(Ended):
            while not stop.is_set():
                lines = watch.take(_WAIT_SECONDS)
                self._deliver(change for line in lines for change in self._chronicle.told(line.type, line.object))
                if any(line.type == "BOOKMARK" for line in lines):
                    self._remember([])

    def _deliver(self, changes: Iterator[Change]) -> None:
        """In portions. What is remembered is just what was delivered: the chronicle goes on change by change."""
        while portion := list(islice(changes, MOST_AT_ONCE)):
            self._remember([self._event(change) for change in portion])

    def _remember(self, events: Sequence[Event]) -> None:
        self._context.deliver(events, self._chronicle.remembered())
        if self._complete and not self._chronicle.knows_all and "DELETE" in self._spec.eventTypes:
            many = "%s: there are more than %d objects: those that go while no replica runs for long are not told of"
            log.warning(many, self._name, MOST_KNOWN)
        self._complete = self._chronicle.knows_all

    def _event(self, change: Change) -> Event:
        data = {
            "type": change.type,
            "body": change.object,
            "group": self._spec.group,
            "version": self._spec.version,
            "resource": self._spec.resource,
        }
        return self._context.identity.event(change.id, self._spec.described(data))


# --- objects --------------------------------------------------------------------------------------------------------


def _metadata(found: Object, name: str) -> str:
    return str((found.get("metadata") or {}).get(name) or "")


def _uid(found: Object) -> str:
    return _metadata(found, "uid") or f"{_metadata(found, 'namespace')}/{_metadata(found, 'name')}"


def _created(found: Object) -> float | None:
    """Seconds since 1970."""
    text = _metadata(found, "creationTimestamp")
    return datetime.fromisoformat(text).timestamp() if text else None


def _with(known: dict[str, Known] | None, found: Object) -> dict[str, Known] | None:
    """None where they get too many."""
    if known is None or (len(known) >= MOST_KNOWN and _uid(found) not in known):
        return None
    known[_uid(found)] = Known.of(found)
    return known


def _not_after(version: str, other: str) -> bool:
    """Versions are numbers in all servers that there are, though nobody has promised it."""
    return version.isdecimal() and other.isdecimal() and int(version) <= int(other)
