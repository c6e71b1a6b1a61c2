"""YAML as a tree that remembers where everything stood.

PyYAML's own constructor forgets positions, keeps the last of two equal keys, and expands aliases without limit.
So only its parser is used (a stream of events, libyaml's where it is there), and the tree is built here: JSON's
types and nothing else, no duplicate keys, no foreign tags, bounded depth and alias expansion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import msgspec
import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import Reader
from yaml.resolver import Resolver

from sensors.spec.base import Path
from sensors.spec.problems import Position, Problem, Source
from sensors.spec.yamlerrors import explain_syntax_error

MAX_DEPTH = 64
MAX_ALIASED_VALUES = 10_000
MAX_UNREADABLE = 20
"""After so many documents that cannot be read, nobody wants to know about the others."""

JsonScalar: TypeAlias = bool | int | float | str | None

_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_TAG = "tag:yaml.org,2002:"
_COLLECTION_TAGS = (None, "!", f"{_TAG}map", f"{_TAG}seq")
_TEXT_TAGS = ("!", f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value", f"{_TAG}merge")
"""Kubernetes reads a bare date or `=` as text; so do we, and `<<` too where it is not a key."""
_CONTROL_CHARACTER: re.Pattern[str] = Reader.NON_PRINTABLE
_DOCUMENT = re.compile(r"---(?=\s|$)")


class Scalar(msgspec.Struct, frozen=True):
    """A single value; `written` is its source, quotes included."""

    value: JsonScalar
    position: Position
    written: str
    size: int = 1
    height: int = 1


class Entry(msgspec.Struct, frozen=True):
    """One key of a mapping, with its value."""

    key: Position
    node: Node


class Map(msgspec.Struct, frozen=True):
    """A mapping with text keys. `size` counts all values in it, `height` the levels."""

    entries: Mapping[str, Entry]
    position: Position
    size: int
    height: int


class List(msgspec.Struct, frozen=True):
    """A sequence. `size` counts all values in it, `height` the levels."""

    items: Sequence[Node]
    position: Position
    size: int
    height: int


Node: TypeAlias = Scalar | Map | List


class Tree(msgspec.Struct, frozen=True):
    """The documents of a text (empty ones left out), and what is wrong with them as YAML."""

    documents: Sequence[Node]
    problems: Sequence[Problem]
    source: Source


def read_tree(text: str, file: str) -> Tree:
    """Read a YAML text. After a document that cannot be read, reading goes on with the next one."""
    source = Source.of(text, file)
    documents: list[Node] = []
    problems = list(_control_characters(source))
    text = _CONTROL_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text)  # or the parser would read nothing at all
    lines = Source.of(text, file).lines
    start = 0
    for _ in range(MAX_UNREADABLE):
        # What was read already is left out, but not its lines, so that those of the rest keep their numbers.
        builder = _Builder("\n" * start + "\n".join(lines[start:]) if start else text, source)
        try:
            documents.extend(builder.documents())
        except _Unreadable as stop:
            following = _next_document(source, max(stop.line, builder.began + 1, start + 1))
        else:
            following = None
        problems += [each for each in builder.problems if each not in problems]
        if following is None:
            break
        start = following
    else:
        problems.append(source.problem("too many documents cannot be read; the rest is not checked", Position(1, 1)))
    return Tree(documents, problems, source)


def _control_characters(source: Source) -> Iterator[Problem]:
    for number, line in enumerate(source.lines):
        found = _CONTROL_CHARACTER.search(line)
        if found is not None:
            position = Position(number + 1, found.start() + 1)
            yield source.problem("malformed YAML: this control character is not allowed", position)


def _next_document(source: Source, line: int) -> int | None:
    return next((at for at in range(line, len(source.lines)) if _DOCUMENT.match(source.lines[at])), None)


def plain(node: Node) -> Any:
    """The tree as ordinary Python values."""
    match node:
        case Scalar():
            return node.value
        case Map():
            return {key: plain(entry.node) for key, entry in node.entries.items()}
        case List():
            return [plain(item) for item in node.items]


def find(node: Node, path: Path) -> Node | None:
    """What stands at a path, if anything does."""
    current: Node | None = node
    for step in path:
        if isinstance(current, Map) and step in current.entries:
            current = current.entries[str(step)].node
        elif isinstance(current, List) and isinstance(step, int) and step < len(current.items):
            current = current.items[step]
        else:
            return None
    return current


def key_position(node: Node, path: Path) -> Position | None:
    """Where the last key of a path is written."""
    parent = find(node, path[:-1]) if path else None
    if isinstance(parent, Map) and path[-1] in parent.entries:
        return parent.entries[str(path[-1])].key
    return None


class _Unreadable(Exception):
    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        """Counted from 0."""


class _Builder:
    """Turns the parser's events into nodes."""

    def __init__(self, text: str, source: Source) -> None:
        self.problems: list[Problem] = []
        self.began = 0
        """The line of the latest document's beginning, counted from 0."""
        self._text = text
        self._source = source
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        self._resolver: Any = Resolver()
        constructor: Any = SafeConstructor()
        self._constructors = {
            f"{_TAG}null": constructor.construct_yaml_null,
            f"{_TAG}bool": constructor.construct_yaml_bool,
            f"{_TAG}int": constructor.construct_yaml_int,
            f"{_TAG}float": constructor.construct_yaml_float,
        }
        self._anchors: dict[str, Node | None] = {}
        self._aliased = 0

    def documents(self) -> Iterator[Node]:
        """Raises `_Unreadable` where reading cannot go on."""
        try:
            yield from self._documents()
        except yaml.YAMLError as error:
            message, position = explain_syntax_error(error, self._text)
            self._note(message, position)
            raise _Unreadable(position.line - 1) from None

    def _documents(self) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.began = self._position(event).line - 1
                self._anchors.clear()
                node = self._node(next(self._events), depth=1)
                if not (isinstance(node, Scalar) and node.value is None):
                    yield node

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        if depth > MAX_DEPTH:
            self._stop(f"values are nested more than {MAX_DEPTH} deep", event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # until it is finished an alias to it would never end
        node: Node
        match event:
            case yaml.MappingStartEvent():
                node = self._map(event, depth)
            case yaml.SequenceStartEvent():
                node = self._list(event, depth)
            case _:
                node = self._scalar(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, depth: int) -> Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            inside = event.anchor in self._anchors
            self._stop(f"`*{event.anchor}` refers to {'itself' if inside else 'an anchor that does not exist'}", event)
        self._aliased += node.size
        if self._aliased > MAX_ALIASED_VALUES:
            self._stop(f"aliases expand to more than {MAX_ALIASED_VALUES:,} values; write them out", event)
        if depth - 1 + node.height > MAX_DEPTH:
            self._stop(f"values are nested more than {MAX_DEPTH} deep", event)
        return node

    def _list(self, event: Any, depth: int) -> List:
        self._check_tag(event)
        items = [self._node(item, depth + 1) for item in self._until(yaml.SequenceEndEvent)]
        return List(items, self._position(event), _size(items), _height(items))

    def _map(self, event: Any, depth: int) -> Map:
        self._check_tag(event)
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key_event in self._until(yaml.MappingEndEvent):
            is_merge = isinstance(key_event, yaml.ScalarEvent) and key_event.value == "<<" and key_event.implicit[0]
            key = self._node(key_event, depth + 1)
            node = self._node(next(self._events), depth + 1)
            if is_merge:
                self._merge(merged, node, key)
            else:
                self._add(entries, key, node)
        entries = {**merged, **entries}
        children = [entry.node for entry in entries.values()]
        return Map(entries, self._position(event), _size(children), _height(children))

    def _add(self, entries: dict[str, Entry], key: Node, node: Node) -> None:
        if not isinstance(key, Scalar):
            self._note("a key must be plain text", key.position)
        elif not isinstance(key.value, str):
            self._note(f"YAML reads the key `{key.written}` as {_kind(key.value)}; put it in quotes", key.position)
        elif key.value in entries:
            first = entries[key.value].key.line
            self._note(f"duplicate key `{key.value}`; it is already set in line {first}", key.position)
        else:
            entries[key.value] = Entry(key.position, node)

    def _merge(self, merged: dict[str, Entry], node: Node, key: Node) -> None:
        """`<<: *defaults`. Of several sources the first one wins."""
        for part in node.items if isinstance(node, List) else [node]:
            if not isinstance(part, Map):
                self._note("`<<` must refer to a mapping", key.position)
                return
            for name, entry in part.entries.items():
                merged.setdefault(name, entry)

    def _scalar(self, event: Any) -> Scalar:
        tag = event.tag or self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
        position, written = self._position(event), self._written(event)
        value: JsonScalar = event.value
        if tag in self._constructors:
            try:
                value = self._constructors[tag](yaml.ScalarNode(tag, event.value))
            except (ValueError, LookupError, OverflowError):
                self._note(f"`{written[:40]}` is not a usable value of its kind; put it in quotes", position)
        elif tag not in _TEXT_TAGS:
            self._foreign_tag(tag, position)
        return Scalar(value, position, written)

    def _until(self, end: type[yaml.Event]) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _written(self, event: Any) -> str:
        return self._text[event.start_mark.index : event.end_mark.index].rstrip()

    def _position(self, event: Any) -> Position:
        first_line = (
            self._written(event).partition("\n")[0] if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent) else ""
        )
        return Position(event.start_mark.line + 1, event.start_mark.column + 1, max(1, len(first_line)))

    def _check_tag(self, event: Any) -> None:
        if event.tag not in _COLLECTION_TAGS:
            self._foreign_tag(event.tag, self._position(event))

    def _foreign_tag(self, tag: str, position: Position) -> None:
        self._note(f"the tag `{tag.replace(_TAG, '!!')}` is not allowed: a manifest is plain data", position)

    def _note(self, message: str, position: Position) -> None:
        self.problems.append(self._source.problem(message, position))

    def _stop(self, message: str, event: Any) -> NoReturn:
        self._note(message, self._position(event))
        raise _Unreadable(event.start_mark.line)


def _size(children: Sequence[Node]) -> int:
    return 1 + sum(child.size for child in children)


def _height(children: Sequence[Node]) -> int:
    return 1 + max((child.height for child in children), default=0)


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case _:
            return "a number"
