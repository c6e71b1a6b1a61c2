"""A compiled template: nodes that compute values, and nodes that write text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Protocol

import msgspec

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.printing import text_of
from sensors.templates.values import Record, is_true, kind_of

_MISSING: Any = object()


class Frame:
    """One rendering: the cursor, the variables, what is written so far."""

    def __init__(self, data: Any, variables: int, budget: Budget) -> None:
        self.dot = data
        self.slots: list[Any] = [data] + [None] * variables
        self.budget = budget
        self._written: list[str] = []
        self._length = 0

    def write(self, text: str) -> None:
        self._length += len(text)
        self.budget.check_text(self._length)
        self._written.append(text)

    def text(self) -> str:
        return "".join(self._written)


class Leave(Exception):
    """`{{break}}` and `{{continue}}` on their way to their loop."""

    def __init__(self, *, loop: bool) -> None:
        super().__init__()
        self.loop = loop


class Expression(Protocol):
    """Something that has a value."""

    @property
    def index(self) -> int: ...

    def value(self, frame: Frame) -> Any: ...


class Node(Protocol):
    """Something that writes."""

    def write(self, frame: Frame) -> None: ...


# --- expressions ----------------------------------------------------------------------------------------------------


class Located(TemplateError):
    """An error that knows which character of the template it is about."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class Constant(msgspec.Struct, frozen=True):
    constant: Any
    index: int

    def value(self, frame: Frame) -> Any:  # noqa: ARG002 - as all expressions
        return self.constant


class Dot(msgspec.Struct, frozen=True):
    index: int

    def value(self, frame: Frame) -> Any:
        return frame.dot


class Variable(msgspec.Struct, frozen=True):
    slot: int
    index: int

    def value(self, frame: Frame) -> Any:
        return frame.slots[self.slot]


class Fields(msgspec.Struct, frozen=True):
    """`.a.b` of something. A key that is not there is nil, and so is everything below it; below null is an error."""

    base: Expression
    names: tuple[str, ...]
    index: int

    def value(self, frame: Frame) -> Any:
        found = self.base.value(frame)
        found = _MISSING if found is None else found
        for name in self.names:
            match found:
                case dict():
                    found = found.get(name, _MISSING)
                case Record() if name in found.fields:
                    found = found.fields[name]
                case _ if found is not _MISSING:
                    what = "null" if found is None else f"a {kind_of(found)}"
                    raise Located(f"there is no `.{name}` in {what}", self.index)
        return None if found is _MISSING else found


class Call(msgspec.Struct, frozen=True):
    name: str
    function: Callable[[Budget, Sequence[Any]], Any]
    arguments: tuple[Expression, ...]
    index: int

    def value(self, frame: Frame) -> Any:
        frame.budget.spend()
        arguments = [argument.value(frame) for argument in self.arguments]
        try:
            return self.function(frame.budget, arguments)
        except Located:
            raise
        except TemplateError as error:
            raise Located(f"{self.name}: {error}", self.index) from None


class Either(msgspec.Struct, frozen=True):
    """`and` and `or`: the first argument that decides; the ones after it are not looked at."""

    decisive: bool
    arguments: tuple[Expression, ...]
    index: int

    def value(self, frame: Frame) -> Any:
        frame.budget.spend()
        for argument in self.arguments:
            found = argument.value(frame)
            if is_true(found) is self.decisive:
                break
        return found


class Pipeline(msgspec.Struct, frozen=True):
    """An expression whose value may also be kept in variables."""

    expression: Expression
    slots: tuple[int, ...] = ()

    @property
    def index(self) -> int:
        return self.expression.index

    def value(self, frame: Frame) -> Any:
        found = self.expression.value(frame)
        for slot in self.slots:
            frame.slots[slot] = found
        return found


# --- what writes ----------------------------------------------------------------------------------------------------


class Text(msgspec.Struct, frozen=True):
    text: str

    def write(self, frame: Frame) -> None:
        frame.budget.spend()
        frame.write(self.text)


class Action(msgspec.Struct, frozen=True):
    pipeline: Pipeline

    def write(self, frame: Frame) -> None:
        found = self.pipeline.value(frame)
        if not self.pipeline.slots:
            frame.write("<no value>" if found is None else text_of(found, frame.budget))


class Jump(msgspec.Struct, frozen=True):
    loop: bool
    """True: on with the next round. False: out of the loop."""

    def write(self, frame: Frame) -> NoReturn:
        frame.budget.spend()
        raise Leave(loop=self.loop)


class If(msgspec.Struct, frozen=True):
    """`if`, and `with`, which also moves the cursor."""

    pipeline: Pipeline
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    moves: bool

    def write(self, frame: Frame) -> None:
        found = self.pipeline.value(frame)
        if is_true(found):
            write_all(self.body, frame, found if self.moves else frame.dot)
        else:
            write_all(self.otherwise, frame, frame.dot)


class Range(msgspec.Struct, frozen=True):
    expression: Expression
    slots: tuple[int, ...]
    """Of nothing, the element, or its key and the element."""
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]

    def write(self, frame: Frame) -> None:
        found = self.expression.value(frame)
        empty = True
        for key, element in self._items(found):
            empty = False
            frame.budget.spend()
            for slot, each in zip(self.slots, (key, element)[-len(self.slots) :], strict=bool(self.slots)):
                frame.slots[slot] = each
            try:
                write_all(self.body, frame, element)
            except Leave as leave:
                if not leave.loop:
                    break
        if empty:
            write_all(self.otherwise, frame, frame.dot)

    def _items(self, found: Any) -> Iterator[tuple[Any, Any]]:
        match found:
            case None:
                return iter(())
            case bool() | str() | float():
                raise Located(f"range cannot go over a {kind_of(found)}", self.expression.index)
            case int():
                return ((number, number) for number in range(found))
            case dict():
                return iter(sorted(found.items(), key=lambda item: item[0]))
            case list():
                return enumerate(list(found))
        raise Located(f"range cannot go over a {kind_of(found)}", self.expression.index)


def write_all(nodes: Sequence[Node], frame: Frame, dot: Any) -> None:
    before, frame.dot = frame.dot, dot
    try:
        for node in nodes:
            node.write(frame)
    finally:
        frame.dot = before
