"""From a JSON Schema (2020-12) to what Kubernetes allows in a custom resource definition: a structural schema.

What Kubernetes has no words for is left to the validator that the command line has, too: it looks at every resource,
and its messages are better. So that it sees misspelt fields, nothing is pruned; and so that it sees what somebody has
written and what not, there are no defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import re2

Schema: TypeAlias = dict[str, Any]

_REF = "#/$defs/"
_KEPT = ("description", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "enum", "required")
_ANYTHING = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"


def structural(schema: Schema) -> Schema:
    """Raises `ValueError` for a schema that refers to itself."""
    return _Translator(schema.get("$defs", {})).translate(schema)


class _Translator:
    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._within: list[str] = []

    def translate(self, schema: Schema) -> Schema:
        if "$ref" in schema:
            return self._referred(schema)
        if isinstance(schema.get("type"), list):
            choices = [{"type": each} for each in schema["type"]]
            return self._union({**{key: schema[key] for key in schema if key != "type"}, "anyOf": choices})
        if "anyOf" in schema:
            return self._union(schema)
        made = {name: schema[name] for name in _KEPT if name in schema}
        made |= _bounds(schema) | _pattern(schema)
        if "const" in schema:
            made["enum"] = [schema["const"]]
        kind = schema.get("type")
        if kind is None:
            return made | {_ANYTHING: True}
        return made | {"type": kind} | self._inside(kind, schema)

    def _inside(self, kind: str, schema: Schema) -> Schema:
        if kind == "array":
            return {"items": self.translate(schema.get("items", {}))}
        if kind != "object":
            return {}
        if "properties" in schema:
            properties = {name: self.translate(each) for name, each in schema["properties"].items()}
            return {"properties": properties, _ANYTHING: True}
        values = schema.get("additionalProperties")
        return {"additionalProperties": self.translate(values)} if isinstance(values, dict) else {_ANYTHING: True}

    def _referred(self, schema: Schema) -> Schema:
        name = schema["$ref"].removeprefix(_REF)
        if name in self._within:
            raise ValueError(f"the schema of `{name}` contains itself")
        self._within.append(name)
        made = self.translate({**self._definitions[name], **{key: schema[key] for key in schema if key != "$ref"}})
        self._within.pop()
        return made

    def _union(self, schema: Schema) -> Schema:
        """One of several types. Kubernetes knows `null` or something else, and numbers that may be texts."""
        around = {name: value for name, value in schema.items() if name != "anyOf"}
        choices = [each for each in schema["anyOf"] if each.get("type") != "null"]
        nullable = {"nullable": True} if len(choices) < len(schema["anyOf"]) else {}
        if len(choices) == 1:
            return self.translate({**choices[0], **around}) | nullable
        made = self.translate(around) | nullable
        if {each.get("type") for each in choices} == {"string", "integer"}:
            del made[_ANYTHING]
            made[_INT_OR_STRING] = True
        return made


def _bounds(schema: Schema) -> Schema:
    """OpenAPI 3.0 says whether a bound belongs to the range, JSON Schema has other bounds for those that do not."""
    made: Schema = {}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in schema:
            made |= {bound: schema[exclusive], exclusive: True}
    return made


def _pattern(schema: Schema) -> Schema:
    """Go's regular expressions are RE2's."""
    if "pattern" not in schema:
        return {}
    try:
        re2.compile(schema["pattern"])
    except re2.error:
        return {}
    return {"pattern": schema["pattern"]}
