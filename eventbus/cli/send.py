"""`eventbus send`: publish events by hand, one or a file of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer
from rich.console import Console

from eventbus.cli.options import BootstrapServers, BusFile, BusOption, Namespace, Output, OutputOption, Verbose
from eventbus.cli.printing import console, say, say_json

if TYPE_CHECKING:
    from eventbus.bus import Bus
    from eventbus.events import Event
    from eventbus.jsonl import Line
    from eventbus.ports import Position

    Lines: TypeAlias = Callable[[], Iterable[Line]]

_BATCH = 500
_OPTION_OF = {"source": "--source", "subject": "--name", "type": "--type", "id": "--id", "partitionkey": "--key"}


class Described(msgspec.Struct, frozen=True):
    """A single event, as far as options describe it."""

    source: str | None = None
    name: str | None = None
    type: str | None = None
    data: str | None = None
    key: str | None = None
    id: str | None = None
    attributes: tuple[str, ...] = ()


def send(
    *,
    source: Annotated[str | None, typer.Option(help="The event's source: a dependency's eventSourceName.")] = None,
    name: Annotated[str | None, typer.Option(help="The event's name (subject): a dependency's eventName.")] = None,
    type_: Annotated[
        str | None, typer.Option("--type", help="The event's type.", show_default="dev.eventbus.event")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|-", help="The data: JSON, a file, or the standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Events with the same key (partitionkey) stay in order.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The event's id.", show_default="a random one")] = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", "-a", metavar="NAME=VALUE", help="A further attribute.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="EVENTS.jsonl", help="One JSON event per line instead; - is stdin.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="With --file: events per second.", show_default="as fast as can be")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Publish events and print where each of them was written, once all in-sync brokers have it."""
    from eventbus.cli.connection import connect

    described = Described(source, name, type_, data, key, id_, tuple(attribute or ()))
    _refuse_mixture(described, file, rate)
    lines = _file(file) if file else _single(described)
    count, largest = _survey(lines)  # all or nothing: one line that is wrong, and no event is sent
    with connect(bootstrap_servers, bus_file, namespace, bus, verbose=verbose) as home:
        home.ensure()
        _refuse_oversized(home, largest)
        _publish(home, lines(), count, rate, output)


# --- what to send ---------------------------------------------------------------------------------------------------


def _refuse_mixture(described: Described, file: Path | None, rate: float | None) -> None:
    from eventbus.errors import ConfigError

    if file is not None and described != Described():
        raise ConfigError("--file brings whole events: leave out the options that describe a single one")
    if file is None and rate is not None:
        raise ConfigError("--rate needs --file: a single event has no rate")


def _file(file: Path) -> Lines:
    """A file is read twice rather than kept in memory; what can be read only once has to be kept."""
    from eventbus.jsonl import STDIN, read_lines

    if str(file) == STDIN or not file.is_file():
        kept = list(read_lines(file))
        return lambda: kept
    return partial(read_lines, file)


def _single(described: Described) -> Lines:
    from uuid import uuid4

    from eventbus.errors import ConfigError, InvalidEvent
    from eventbus.events import DEFAULT_TYPE, Attribute, Event
    from eventbus.jsonl import Line

    if described.source is None or described.name is None:
        raise ConfigError("say what to send: --source and --name for one event, or --file for many")
    attributes: dict[str, Attribute] = {
        "specversion": "1.0",
        "id": uuid4().hex if described.id is None else described.id,
        "source": described.source,
        "type": DEFAULT_TYPE if described.type is None else described.type,
        "subject": described.name,
    }
    attributes |= dict(map(_attribute, described.attributes))
    if described.key is not None:
        attributes["partitionkey"] = described.key
    content = None if described.data is None else _content(described.data)
    if content is not None:
        attributes.setdefault("datacontenttype", "application/json")
    event = Event(attributes, content)
    try:
        event.check()
    except InvalidEvent as error:
        raise ConfigError(str(error)) from None
    if event.has_json:
        _check_json(event)
    return lambda: [Line(event, "the event")]


def _attribute(text: str) -> tuple[str, str]:
    from eventbus.errors import ConfigError

    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"--attribute {text}: write it as NAME=VALUE")
    if name in _OPTION_OF:
        raise ConfigError(f"--attribute {text}: use {_OPTION_OF[name]}")
    return name, value


def _content(data: str) -> bytes:
    from eventbus.errors import ConfigError

    if data == "-":
        return sys.stdin.buffer.read()
    if data.startswith("@"):
        try:
            return Path(data[1:]).read_bytes()
        except OSError as error:
            raise ConfigError(f"--data {data}: cannot be read: {error.strerror}") from None
    return data.encode()


def _check_json(event: Event) -> None:
    from eventbus.errors import ConfigError, InvalidEvent

    try:
        event.json()
    except InvalidEvent as error:
        raise ConfigError(
            f"--data: {error}. Text needs quotes of its own ('\"text\"'); "
            "for anything but JSON say what it is, as in --attribute datacontenttype=text/plain"
        ) from None


# --- sending --------------------------------------------------------------------------------------------------------


def _survey(lines: Lines) -> tuple[int, Line]:
    """How many events there are, and the largest."""
    from eventbus.errors import ConfigError

    count, largest, size = 0, None, -1
    for line in lines():
        count += 1
        if _size(line) > size:
            largest, size = line, _size(line)
    if largest is None:
        raise ConfigError("there is no event in the file")
    return count, largest


def _size(line: Line) -> int:
    """Bytes on the wire."""
    from eventbus.cloudevents import to_kafka
    from eventbus.ports import Output as Written

    headers, value = to_kafka(line.event)
    return Written("", 0, line.event.key, value, headers).size()


def _refuse_oversized(home: Bus, line: Line) -> None:
    from eventbus.errors import ConfigError
    from eventbus.topics import EVENT_BYTES

    topic = home.name.event_topic
    info = home.cluster.describe([topic])[topic]
    limit = int(info.config.get("max.message.bytes", EVENT_BYTES)) if info else EVENT_BYTES
    size = _size(line)
    if size > limit:
        raise ConfigError(
            f"{line.place} takes {size:,} bytes, and the topic `{topic}` takes at most {limit:,} per event "
            "(its max.message.bytes): nothing was sent. Send a reference to the data instead"
        )


def _publish(home: Bus, lines: Iterable[Line], count: int, rate: float | None, output: Output) -> None:
    from rich.progress import Progress

    out = console()
    with Progress(console=out, transient=True, disable=not out.is_terminal or count == 1) as progress:
        task = progress.add_task("sending", total=count)
        for batch in _paced(lines, rate):
            events = [line.event for line in batch]
            for event, position in zip(events, home.publish_all(events), strict=True):
                _print(event, position, output, out)
            progress.advance(task, len(batch))


def _paced(lines: Iterable[Line], rate: float | None) -> Iterator[list[Line]]:
    """Batches, none before its time."""
    remaining = iter(lines)
    began, sent = time.monotonic(), 0
    size = _BATCH if rate is None else max(1, min(_BATCH, int(rate / 20)))
    while batch := list(islice(remaining, size)):
        if rate is not None:
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
        yield batch
        sent += len(batch)


def _print(event: Event, position: Position, output: Output, out: Console) -> None:
    if output is Output.JSON:
        say_json({"id": event.id, "topic": position.topic, "partition": position.partition, "offset": position.offset})
    else:
        say(f"{position.topic}[{position.partition}]@{position.offset}", (f"  {event.id}", "dim"), to=out)
