"""The references of manifests' fields, one page for each kind, made from the models that check manifests.

What a field means is said once, in the docstring below it. Where there is none, the docstring of the field's own
model says it, or a page's `evident`: fields that need no words where they are declared, but do in a table.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from sensors.filters.spec import Attributes
from sensors.spec import fields, joins
from sensors.spec.base import SpecModel
from sensors.spec.fielddocs import field_docs
from sensors.spec.manifest import Manifest

_WORDS = {
    fields.Bool: "true or false",
    fields.Text: "text",
    fields.StringMap: "map of text to text",
    fields.CountFromOne: "whole number, at least 1",
    fields.KubernetesName: "[Kubernetes name](#kinds-of-values)",
    fields.PartName: "[name](#kinds-of-values)",
    fields.EventReference: "[event reference](#kinds-of-values)",
    fields.Duration: "[duration](#kinds-of-values)",
    fields.Amount: "[amount](#kinds-of-values)",
    joins.Span: "[duration](#kinds-of-values)",
    joins.Counts: "map of dependency to whole number",
    joins.Where: "text, or map of dependency to text",
    Attributes: "map of attribute to value",
    dict[fields.Text, Any]: "anything",
    int: "whole number",
    Any: "anything",
}

_KINDS_OF_VALUES = {
    "Kubernetes name": "lower-case letters, digits, `-` and `.`; begins and ends with a letter or digit",
    "name": "letters, digits, `-`, `_` and `.`",
    "event reference": "1 to 1,024 printable characters without white space at the ends",
    "duration": "`500ms`, `3s`, `1m30s`; a bare number counts nanoseconds, as in argo-events",
    "amount": "a number from 0 to 1,000; it may be written as text, as in argo-events",
}
_WORDS_OF_SCHEMA = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "map",
}


_PLACES_NAMED = 3
_REFUSALS_EXPLAINED = 8
_REPEATED = {tuple: "[]", dict: "{}"}


class Section(NamedTuple):
    """One model, and every place in a manifest where it is used."""

    model: type[SpecModel]
    places: list[str]

    def title_of(self, steps: int) -> str:
        """The last steps of the first place."""
        return ".".join(re.sub(r"\[\]|\{\}", "", self.places[0]).split(".")[-steps:]) or "manifest"


class Page(NamedTuple):
    """Of one kind of manifest."""

    manifest: type[Manifest]
    introduction: str
    evident: Mapping[str, str]
    otherwise: str | None = None
    """What is said about a field that nobody has described; without it that is a mistake."""

    def text(self) -> str:
        return _Writer(self).text()


def _sections(manifest: type[Manifest]) -> dict[type[SpecModel], Section]:
    sections: dict[type[SpecModel], Section] = {}
    for model, place in _walk(manifest, ""):
        sections.setdefault(model, Section(model, [])).places.append(place)
    return sections


def _walk(model: type[SpecModel], place: str) -> Iterator[tuple[type[SpecModel], str]]:
    """Models in the order in which a reader of a manifest meets them."""
    yield model, place
    hints = get_type_hints(model, include_extras=True)
    for name in _visible(model):
        inner, repeated = _model_in(hints[name])
        if inner is not None:
            yield from _walk(inner, f"{place}.{name}{repeated}".lstrip("."))


def _visible(model: type[SpecModel]) -> list[str]:
    return [name for name in model.model_fields if name not in model.hidden]


def _model_in(hint: Any) -> tuple[type[SpecModel] | None, str]:
    """The model that a field holds, and `[]` or `{}` if it holds several of them."""
    if isinstance(hint, type) and issubclass(hint, SpecModel):
        return hint, ""
    for part in get_args(hint):
        found, repeated = _model_in(part)
        if found is not None:
            return found, repeated or _REPEATED.get(get_origin(hint), "")
    return None, ""


class _Writer:
    """Writes a page."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._sections = _sections(page.manifest)

    def text(self) -> str:
        parts = [self._page.introduction, *map(self._section, self._sections.values())]
        used = [kind for kind in _KINDS_OF_VALUES if f"[{kind}](#kinds-of-values)" in "".join(parts)]
        rows = [f"| {kind} | {_KINDS_OF_VALUES[kind]} |\n" for kind in used]
        return "\n".join([*parts, "## Kinds of values\n\n| kind | what it may be |\n|---|---|\n" + "".join(rows)])

    def _section(self, section: Section) -> str:
        model = section.model
        places = [f"`{place}`" for place in section.places if "." in place]
        where = " and ".join(places)
        if len(places) > _PLACES_NAMED:
            where = f"{places[0]} and {len(places) - 1} other places"
        lines = [
            f"## {self._title(section)}",
            "",
            *([f"{where}:"] if where else []),
            inspect.cleandoc(model.__doc__ or ""),
        ]
        lines += ["", "| field | type | default | meaning |", "|---|---|---|---|"]
        lines += [self._row(section, name) for name in _visible(model)]
        if model.not_yet:
            refused = ", ".join(f"`{name}`" for name in sorted(model.not_yet))
            lines += ["", f"In argo-events, but not here yet: {refused}."]
        if len(model.refused) > _REFUSALS_EXPLAINED:
            lines += ["", f"In argo-events, but not here: {', '.join(f'`{name}`' for name in sorted(model.refused))}."]
        elif model.refused:
            lines += ["", *(f"- {reason}." for _, reason in sorted(model.refused.items()))]
        return "\n".join(lines) + "\n"

    def _title(self, section: Section) -> str:
        """What sets it apart: `k8s` is the name of an action, and of a part of a policy."""
        others = [each for each in self._sections.values() if each is not section]
        steps = 1
        while section.title_of(steps) in {each.title_of(steps) for each in others}:
            steps += 1
        return section.title_of(steps)

    def _row(self, section: Section, name: str) -> str:
        model, places = section
        field, hint = model.model_fields[name], get_type_hints(model, include_extras=True)[name]
        place = f"{places[0]}.{name}".lstrip(".")
        cells = (f"`{name}`", self._type(hint), _default_text(field), self._meaning(model, name, hint, place))
        return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

    def _meaning(self, model: type[SpecModel], name: str, hint: Any, place: str) -> str:
        inner, _ = _model_in(hint)
        text = field_docs(model).get(name) or self._page.evident.get(place) or (_summary(inner) if inner else None)
        text = text or self._page.otherwise
        if text is None:
            raise LookupError(f"what does `{place}` mean? Give it a docstring in {model.__module__}")
        return " ".join(text.split())

    # --- types and defaults -----------------------------------------------------------------------------------------

    def _type(self, hint: Any) -> str:
        known = next((words for kind, words in _WORDS.items() if kind == hint), None)
        if known is not None:
            return known
        if hint in self._sections:
            title = self._title(self._sections[hint])
            return f"[{title}](#{title.lower().replace('.', '')})"
        return self._composed_type(hint) or _schema_text(hint)

    def _composed_type(self, hint: Any) -> str | None:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._type(next(each for each in arguments if each is not NoneType))
        if origin is Literal:
            return ", ".join(f"`{each}`" for each in arguments if each)
        if origin is tuple:
            return f"list: {self._type(arguments[0])}"
        if origin is dict:
            return f"map of {self._type(arguments[0])} to {self._type(arguments[1])}"
        if origin is Annotated:
            return _number_text(hint) or self._type(_strict(arguments[0]))
        return None


def _summary(model: type[SpecModel]) -> str | None:
    """The rest is told in the model's own section."""
    return model.__doc__ and model.__doc__.split("\n\n")[0]


def _strict(hint: Any) -> Any:
    """`Annotated` swallows what is annotated already; text and its strict form look alike in a manifest."""
    return fields.Text if hint is str else hint


def _schema_text(hint: Any) -> str:
    """What a JSON Schema would say."""
    schema = TypeAdapter(hint).json_schema()
    kinds = [each.get("type") for each in schema.get("anyOf", [schema])]
    return " or ".join(_WORDS_OF_SCHEMA[kind] for kind in kinds if kind in _WORDS_OF_SCHEMA) or "anything"


def _number_text(hint: Any) -> str | None:
    schema = TypeAdapter(hint).json_schema() if get_args(hint)[0] is int else {}
    if "maximum" in schema:
        return f"whole number, {schema['minimum']} to {schema['maximum']}"
    return f"whole number, at least {schema['minimum']}" if "minimum" in schema else None


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None or isinstance(field.default, SpecModel):
        return ""
    if isinstance(field.default, timedelta):
        return f"`{field.default.total_seconds():g}s`"
    return "empty" if field.default in ("", {}, ()) else f"`{to_json(field.default).decode().strip(chr(34))}`"
