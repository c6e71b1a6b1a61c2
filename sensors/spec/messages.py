"""Pydantic's errors as plain sentences. Nobody who writes a manifest should need to know that pydantic exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, get_args, get_origin

from pydantic import ValidationError

from sensors.spec.base import FLAW, Flaw, Path, SpecModel
from sensors.spec.suggestions import suggest

Written: TypeAlias = Callable[[Path], str | None]
"""How the value at a path is written in the source, if there is one."""

_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
}


_SENTENCES = {
    "missing": "{label} is missing",
    "value_error": "{label} {error}",
    "greater_than_equal": "{label} must be at least {ge}",
    "too_short": "{label} must have at least one entry",
    "string_too_short": "{label} must not be empty",
}


_KEY = "[key]"
"""Where pydantic says that it is about the name of something, and not about what has that name."""


def translate(error: ValidationError, model: type[SpecModel], written: Written) -> Iterator[Flaw]:
    """Everything that pydantic found wrong with a `model`."""
    for each in error.errors(include_url=False):
        path: Path = each["loc"]
        if each["type"] == FLAW:
            yield Flaw.of(each)
        elif path[-1:] == (_KEY,):
            yield Flaw(path[:-1], _sentence({**each, "loc": path[:-1]}, None), about_key=True)
        elif each["type"] == "extra_forbidden":
            yield Flaw(path, _unknown_field(path, model), about_key=True)
        elif each["type"] != "too_short" or not each["input"]:  # else there are entries, each with its own problem
            yield Flaw(path, _sentence(each, written(path)))


def _sentence(error: Mapping[str, Any], written: str | None) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    label = _label(error["loc"])
    if kind in _EXPECTED:
        return _wrong_kind(label, _EXPECTED[kind], value, written)
    if kind == "literal_error":
        allowed = context["expected"].replace("'", "`")
        return f"{label} must be {allowed}, not `{value}`"
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(label=label, **context)
    return f"{label}: {error['msg']}"


def _label(path: Path) -> str:
    if not path:
        return "the manifest"
    if isinstance(path[-1], int):
        return f"`{path[-2] if len(path) > 1 else ''}[{path[-1]}]`"
    return f"`{path[-1]}`"


def _wrong_kind(label: str, expected: str, value: object, written: str | None) -> str:
    match value:
        case None:
            return f"{label} is empty; it must be {expected}"
        case bool() | int() | float() if expected == "text" and written is not None:
            kind = str(value).lower() if isinstance(value, bool) else "a number"
            return f"{label} must be text, but YAML reads `{written}` as {kind}; put it in quotes"
        case bool():
            kind = "true or false"
        case int() | float():
            kind = "a number"
        case str():
            kind = "text"
        case Mapping():
            kind = "a mapping"
        case _:
            kind = "a list"
    return f"{label} must be {expected}, not {kind}"


def _unknown_field(path: Path, model: type[SpecModel]) -> str:
    name = str(path[-1])
    owner = _model_at(model, path[:-1])
    if name in owner.not_yet:
        return f"`{name}` is not supported yet"
    if name in owner.refused:
        return owner.refused[name]
    return f"unknown field `{name}`; {suggest(name, owner.model_fields.keys() - owner.hidden)}"


def _model_at(model: type[SpecModel], path: Path) -> type[SpecModel]:
    steps = iter(path)
    for step in steps:
        if isinstance(step, str):
            annotation = model.model_fields[step].annotation
            model = next(_models_in(annotation))
            if get_origin(annotation) is dict:
                next(steps, None)  # a name that somebody has chosen
    return model


def _models_in(annotation: Any) -> Iterator[type[SpecModel]]:
    if isinstance(annotation, type) and issubclass(annotation, SpecModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
