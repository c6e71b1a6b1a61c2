"""What a template can call. A function's annotations say what it takes, so that this is checked in one place.

`Budget` is handed in, not taken from the template. `Any` takes everything; `*rest` takes any number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_type_hints

import msgspec

from sensors.templates.budget import Budget
from sensors.templates.dates import Time
from sensors.templates.errors import TemplateError, TemplateSyntaxError
from sensors.templates.nodes import Constant, Expression
from sensors.templates.values import kind_of

Dict: TypeAlias = dict[str, Any]
List: TypeAlias = list[Any]

_WANTED: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a string"),
    int: ((int,), "an int"),
    float: ((float,), "a float64"),
    bool: ((bool,), "a bool"),
    Dict: ((dict,), "a map"),
    List: ((list,), "a list"),
    Time: ((Time,), "a time"),
}


class Function(msgspec.Struct, frozen=True):
    """A function of templates."""

    name: str
    call: Callable[..., Any]
    kinds: tuple[Any, ...]
    """What each parameter takes."""
    required: int
    rest: Any
    """What further arguments must be; None where there can be none."""
    wants_budget: bool

    @classmethod
    def of(cls, name: str, call: Callable[..., Any]) -> Function:
        hints = get_type_hints(call)
        parameters = list(inspect.signature(call).parameters.values())
        wants_budget = bool(parameters) and hints[parameters[0].name] is Budget
        named = [each for each in parameters[wants_budget:] if each.kind is not each.VAR_POSITIONAL]
        rest = next((hints[each.name] for each in parameters if each.kind is each.VAR_POSITIONAL), None)
        required = sum(each.default is each.empty for each in named)
        return cls(name, call, tuple(hints[each.name] for each in named), required, rest, wants_budget)

    def bind(self, arguments: Sequence[Expression], index: int) -> list[Expression]:
        """The arguments as this function takes them. What can be told before there is an event is told now."""
        if len(arguments) < self.required or (self.rest is None and len(arguments) > len(self.kinds)):
            raise TemplateSyntaxError(f"`{self.name}` takes {self._arity()}, not {len(arguments)}", index)
        return [self._bound(argument, number) for number, argument in enumerate(arguments)]

    def __call__(self, budget: Budget, arguments: Sequence[Any]) -> Any:
        values = [self._checked(value, number) for number, value in enumerate(arguments)]
        return self.call(budget, *values) if self.wants_budget else self.call(*values)

    def _kind(self, number: int) -> Any:
        return self.kinds[number] if number < len(self.kinds) else self.rest

    def _bound(self, argument: Expression, number: int) -> Expression:
        if not isinstance(argument, Constant):
            return argument
        kind, value = self._kind(number), argument.constant
        if kind is float and type(value) is int:
            value = float(value)
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        try:
            self._checked(value, number)
        except TemplateError as error:
            raise TemplateSyntaxError(f"`{self.name}`: {error}", argument.index) from None
        return Constant(value, argument.index)

    def _checked(self, value: Any, number: int) -> Any:
        kind = self._kind(number)
        if kind is Any or kind is object:
            return value
        if kind == Dict and value is None:
            return {}
        types, words = _WANTED[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
            found = "nil" if value is None else kind_of(value)
            hint = "; convert it with `toString`" if kind is str and value is not None else ""
            hint = "; convert it with `int`" if kind is int and isinstance(value, float | str) else hint
            raise TemplateError(f"argument {number + 1} must be {words}, not {found}{hint}")
        return value

    def _arity(self) -> str:
        most = len(self.kinds)
        if self.rest is not None:
            return f"at least {_counted(self.required)}"
        return _counted(most) if self.required == most else f"{self.required} to {_counted(most)}"


def _counted(number: int) -> str:
    return f"{number} argument{'' if number == 1 else 's'}"
