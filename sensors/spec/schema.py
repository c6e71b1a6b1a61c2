"""The JSON Schema of a manifest, for editors.

It is made from the models that check manifests. A schema cannot say everything that they check (names that refer to
each other, expressions, templates), so what it accepts may still be refused; what it refuses never loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sensors.actions import ACTIONS
from sensors.spec.base import SpecModel
from sensors.spec.fielddocs import field_docs
from sensors.spec.manifest import Manifest, Metadata
from sensors.spec.models import SensorManifest, TriggerTemplateBase

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNWRITABLE = frozenset(kind for kind, action in ACTIONS.items() if not action.in_manifests)
"""Actions that only a program can have."""


def manifest_schema(model: type[Manifest]) -> dict[str, Any]:
    """The schema of one manifest, by JSON Schema 2020-12."""
    return {"$schema": DIALECT, **_tidy(model.model_json_schema(schema_generator=_Generator))}


def sensor_schema() -> dict[str, Any]:
    return manifest_schema(SensorManifest)


class _Generator(GenerateJsonSchema):
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        model = schema["cls"]
        if not issubclass(model, SpecModel):
            return super().model_schema(schema)
        made = super().model_schema(_without(schema, model.hidden & _UNWRITABLE))
        made["description"] = " ".join((model.__doc__ or "").split())
        for name, text in field_docs(model).items():
            if name in made["properties"]:
                made["properties"][name]["description"] = text
        for name in model.hidden - _UNWRITABLE:
            made["properties"][name]["deprecated"] = True  # accepted, but no editor should propose it
        if issubclass(model, Metadata):
            made["properties"] |= {name: {} for name in sorted(model.from_cluster)}
        if issubclass(model, TriggerTemplateBase):
            made["oneOf"] = [_chosen(kind) for kind in ACTIONS if kind not in _UNWRITABLE]
        return made


def _without(schema: core_schema.ModelSchema, hidden: frozenset[str]) -> core_schema.ModelSchema:
    """Fields that nobody can write in YAML hold what no schema can describe."""
    inner = schema["schema"]
    if not hidden or inner["type"] != "model-fields":
        return schema
    fields = {name: field for name, field in inner["fields"].items() if name not in hidden}
    return {**schema, "schema": {**inner, "fields": fields}}


def _chosen(kind: str) -> JsonSchemaValue:
    """An action that is null is none."""
    return {"required": [kind], "properties": {kind: {"type": "object"}}}


def _tidy(schema: Any) -> Any:
    """Without what says nothing: generated titles, and defaults that mean "not given"."""
    match schema:
        case Mapping():
            return {
                name: _tidy_properties(value) if name == "properties" else _tidy(value)
                for name, value in schema.items()
                if name != "title" and not (name == "default" and value in (None, "", [], {}))
            }
        case list():
            return [_tidy(each) for each in schema]
    return schema


def _tidy_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties may be called `title` or `default`."""
    return {name: _tidy(schema) for name, schema in properties.items()}
