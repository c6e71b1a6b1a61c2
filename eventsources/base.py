"""What an event source is: one file under `eventsources/sources` that defines a spec model and how to produce from it.

There are two shapes. A `Source` goes and fetches what happens elsewhere, in a thread of its own. An `Endpoint` is told
of it over HTTP: all endpoints of a port share one server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event as Flag
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec
from pydantic import AfterValidator, Field

from eventbus.events import Attribute, Event
from eventbus.ports import Clock
from sensors.expressions import ExpressionError, parse
from sensors.extras import lacking
from sensors.selectors import compile_selector
from sensors.spec.base import Flaw, SpecModel
from sensors.spec.fields import StringMap, Text

Stop: TypeAlias = Flag


def _selector(text: str) -> str:
    compile_selector(text)
    return text


class EventFilter(SpecModel):
    """Which of the events are produced at all."""

    expression: Text
    """As in a sensor's `exprs`; names reach into the data: `body.amount > 100`."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        text = data.get("expression") if isinstance(data, Mapping) else None
        if isinstance(text, str):
            try:
                parse(text, reaching=True)
            except ExpressionError as error:
                yield Flaw(("expression",), f"`expression`: {error.message}", index=error.column - 1)


class SourceSpec(SpecModel):
    """What every source may say."""

    filter: EventFilter | None = None
    metadata: StringMap = Field(default={})
    """Goes with the data of every event, as `metadata`."""
    partitionKey: Annotated[Text, AfterValidator(_selector)] | None = None
    """Where to find what orders the events, such as `data.body.customer`: those that share it stay in order."""

    def described(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data of an event, with `metadata` where there is any."""
        return {**data, "metadata": self.metadata} if self.metadata else data

    def advice(self) -> Iterable[Flaw]:
        """What is allowed but probably not meant."""
        return ()


class Identity(msgspec.Struct, frozen=True):
    """Whose events they are: what a sensor's dependency asks for."""

    source: str
    """The name of the EventSource."""
    name: str
    """The name of the event in it."""
    kind: str
    """Which kind of source it is; the events' `type`."""

    def event(self, id: str, data: Any, **extensions: Attribute) -> Event:
        """`id` comes from the source's own coordinates: what happened once has one id, however often it is told."""
        return Event.new(self.source, self.name, data, type=self.kind, id=id, **extensions)

    def __str__(self) -> str:
        return f"{self.source}/{self.name}"


class SourceError(Exception):
    """A source cannot go on. It is started again after a while; the message says what is wrong, in one line."""


class Context(msgspec.Struct, frozen=True):
    """What a source may know of its surroundings."""

    identity: Identity
    clock: Clock
    deliver: Deliver
    remembered: bytes | None = None
    """What was last delivered to be remembered, by this process or another; for sources that run once."""


class Unusable(msgspec.Struct, frozen=True):
    """A message of which no event can be made. It goes to the dead letters, and keeps nobody waiting."""

    id: str
    """As the event's would be."""
    reason: str
    body: bytes


Told: TypeAlias = Event | Unusable
"""What a source makes of a message."""


class Deliver(Protocol):
    """Where a source puts its events."""

    def __call__(self, told: Sequence[Told], /, remember: bytes | None = None) -> None:
        """Returns when all in-sync replicas have what is wanted of it. Raises `SourceError`.

        What a source that runs once wants its successor to remember is written with the events, or not at all.
        """


@runtime_checkable
class Source(Protocol):
    """Fetches. Runs in a thread of its own."""

    def run(self, context: Context, stop: Stop) -> None:
        """Produce until `stop` is set. What it raises is a `SourceError`."""


@runtime_checkable
class Endpoint(Protocol):
    """Is told, over HTTP. Called from the server's event loop: it must not wait for anything."""

    port: int
    path: str
    methods: frozenset[str]
    accepted: int
    """The status of the answer once the brokers have the events."""

    def events(self, identity: Identity, request: Request) -> Sequence[Event]:
        """What a request means. Raises `Refusal`, `Unwanted` or `Reply`."""


class SourceKind(NamedTuple):
    """What a manifest may say about a source, and how it is made from that."""

    spec: type[SourceSpec]
    make: Callable[[Any], Source | Endpoint]
    once: bool | Callable[[Any], bool | None]
    """Whether it must run in one process at a time: of several replicas one is elected.

    Where that depends on the spec, a function of it, which may not be valid yet; None is either way.
    """
    extra: str | None = None
    """What to install beside this package, as one of its extras."""
    modules: tuple[str, ...] = ()
    """The modules that this brings."""

    def lacking(self) -> str | None:
        """What has to be installed before the source can be used."""
        return lacking(self.extra, self.modules)

    def runs_once(self, spec: Any) -> bool | None:
        """Whether this one must; None where it is content with either."""
        return self.once if isinstance(self.once, bool) else self.once(spec)


class Request(msgspec.Struct, frozen=True):
    """A request whose body is complete."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    """In the order of the wire; names in lower case."""
    body: bytes

    def header(self, name: str) -> str | None:
        """The first header of that name."""
        return next((value for key, value in self.headers if key == name), None)


class Refusal(Exception):
    """A request that gets no event: the status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Unwanted(Exception):
    """A request whose event was not asked for: it is answered like any other, and its event is left out."""


class Reply(Exception):
    """A request that wants to be told something, and is no event."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
