"""Reads manifests. Whatever is wrong with one is reported at once, each problem with its line and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import ValidationError

from sensors.spec.base import Flaw, Path
from sensors.spec.manifest import API_VERSIONS, Manifest
from sensors.spec.messages import Written, translate
from sensors.spec.models import SensorManifest
from sensors.spec.positions import Document
from sensors.spec.problems import ManifestError, Problem
from sensors.spec.yamltree import plain, read_tree

MAX_BYTES = 1024 * 1024
"""What Kubernetes can store is hardly more, and nobody writes a larger one by hand."""


M = TypeVar("M", bound=Manifest)


class Inspection(msgspec.Struct, Generic[M], frozen=True):
    """All that there is in a text, good or bad."""

    manifests: Sequence[M]
    problems: Sequence[Problem]
    others: int
    """How many documents are something else."""


class Reader(Generic[M]):
    """Reads manifests of one or several kinds."""

    def __init__(self, *models: type[M]) -> None:
        self._models = {model.called: model for model in models}

    def load(self, path: str | FilePath) -> list[M]:
        """The manifests in a YAML file, which has one document for each. Raises `ManifestError`."""
        return self.load_text(read_text(path), str(path))

    def load_one(self, path: str | FilePath) -> M:
        """The one manifest in a YAML file. Raises `ManifestError`."""
        manifests = self.load(path)
        if len(manifests) > 1:
            message = f"there are {len(manifests)} manifests in this file, and one is expected"
            raise ManifestError([Problem(message, str(path))])
        return manifests[0]

    def load_text(self, text: str, filename: str) -> list[M]:
        """The manifests in a YAML text, one document for each. Raises `ManifestError`."""
        found = self._inspect(text, filename, lambda _: False)
        if found.problems:
            raise ManifestError(found.problems)
        if not found.manifests:
            raise ManifestError([Problem("the manifest is empty", filename)])
        return list(found.manifests)

    def inspect_text(self, text: str, filename: str) -> Inspection[M]:
        """The manifests in a YAML text, beside which there may be documents of other kinds."""
        return self._inspect(text, filename, self._is_something_else)

    def make(self, data: Mapping[str, Any]) -> M:
        """A manifest made by a program. Raises `ManifestError`, whose problems name fields instead of lines."""
        try:
            manifest = self._validate(data, lambda _: None)
        except _Flawed as error:
            raise ManifestError([unplaced(flaw) for flaw in error.flaws]) from None
        manifest.attach_warnings(map(unplaced, manifest.advice()))
        return manifest

    def _inspect(self, text: str, filename: str, passed_over: Callable[[Any], bool]) -> Inspection[M]:
        tree = read_tree(text, filename)
        problems = list(tree.problems)
        found: dict[tuple[str, str, str], M] = {}
        others = 0
        for node in tree.documents:
            document, data = Document(node, tree.source), plain(node)
            if passed_over(data):
                others += 1
                continue
            try:
                manifest = self._validate(data, document.written)
            except _Flawed as error:
                problems += map(document.problem, error.flaws)
                continue
            manifest.attach_warnings(map(document.problem, manifest.advice()))
            if found.setdefault((manifest.called, manifest.namespace, manifest.name), manifest) is not manifest:
                message = f"two {manifest.plural} of this file are named `{manifest.name}`"
                problems.append(document.problem(Flaw(("metadata", "name"), message)))
        problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
        return Inspection(list(found.values()), problems, others)

    def _validate(self, data: Any, written: Written) -> M:
        flaws = list(self._envelope_flaws(data))
        if flaws:
            raise _Flawed(flaws)  # it is something else altogether: complaints about its fields would only confuse
        model = self._models[data["kind"]]
        try:
            return model.model_validate(data)
        except ValidationError as error:
            raise _Flawed(list(translate(error, model, written))) from None

    def _envelope_flaws(self, data: Any) -> Iterator[Flaw]:
        if not isinstance(data, Mapping):
            yield Flaw((), "a manifest must be a mapping with `apiVersion`, `kind`, `metadata` and `spec`")
            return
        for field, allowed in (("apiVersion", API_VERSIONS), ("kind", tuple(self._models))):
            value = data.get(field)
            if value not in allowed:
                fault = "is missing" if value is None else f"cannot be `{value}`"
                yield Flaw((field,), f"`{field}` {fault}; write {' or '.join(f'`{each}`' for each in allowed)}")

    def _is_something_else(self, data: Any) -> bool:
        """A Kubernetes object, a kind that nobody asked for; but not one of ours that is misspelt."""
        kind, api_version = (data.get("kind"), data.get("apiVersion")) if isinstance(data, Mapping) else (None, None)
        if not isinstance(kind, str) or not isinstance(api_version, str) or not kind or kind in self._models:
            return False
        known = [each.lower() for each in self._models]
        return api_version not in API_VERSIONS or not get_close_matches(kind.lower(), known, cutoff=0.7)


SENSORS = Reader(SensorManifest)
load_manifest = SENSORS.load_one
load_manifests = SENSORS.load
load_text = SENSORS.load_text
inspect_text = SENSORS.inspect_text
make_manifest = SENSORS.make


def read_text(path: str | FilePath) -> str:
    """What is in a file, as far as it can be a manifest. Raises `ManifestError`."""
    try:
        with FilePath(path).open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError([Problem(f"cannot be read: {error.strerror}", str(path))]) from None
    return decode_text(content, str(path))


def decode_text(content: bytes, filename: str) -> str:
    """Bytes as text, as far as they can be a manifest. Raises `ManifestError`."""
    if len(content) > MAX_BYTES:
        raise ManifestError([Problem(f"is larger than {MAX_BYTES // 1024} KiB, which no manifest may be", filename)])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ManifestError([Problem(f"is not UTF-8 text: see line {line}", filename)]) from None


class _Flawed(Exception):
    def __init__(self, flaws: list[Flaw]) -> None:
        super().__init__()
        self.flaws = flaws


def unplaced(flaw: Flaw) -> Problem:
    column = "" if flaw.index is None else f" (column {flaw.index + 1})"
    return Problem(f"{flaw.message}{column}", _dotted(flaw.path))


def _dotted(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.lstrip(".") or "manifest"
