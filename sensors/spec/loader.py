"""Reads Sensor manifests. Whatever is wrong with one is reported at once, each problem with its line and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any

import msgspec

from sensors.spec.base import Flaw, Path
from sensors.spec.checks import spec_warnings
from sensors.spec.models import KIND, SensorManifest
from sensors.spec.positions import Document
from sensors.spec.problems import ManifestError, Problem
from sensors.spec.validation import API_VERSIONS, Flawed, validated
from sensors.spec.yamltree import plain, read_tree

MAX_BYTES = 1024 * 1024
"""What Kubernetes can store is hardly more, and nobody writes a larger one by hand."""


class Inspection(msgspec.Struct, frozen=True):
    """All that there is in a text, good or bad."""

    sensors: Sequence[SensorManifest]
    problems: Sequence[Problem]
    others: int
    """How many documents are something else than a Sensor."""


def load_manifest(path: str | FilePath) -> SensorManifest:
    """The one Sensor in a YAML file. Raises `ManifestError`."""
    manifests = load_manifests(path)
    if len(manifests) > 1:
        message = f"there are {len(manifests)} manifests in this file, and one is expected"
        raise ManifestError([Problem(message, str(path))])
    return manifests[0]


def load_manifests(path: str | FilePath) -> list[SensorManifest]:
    """The Sensors in a YAML file, which has one document for each. Raises `ManifestError`."""
    return load_text(read_text(path), str(path))


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


def load_text(text: str, filename: str) -> list[SensorManifest]:
    """The Sensors in a YAML text, one document for each. Raises `ManifestError`."""
    found = _inspect(text, filename, lambda _: False)
    if found.problems:
        raise ManifestError(found.problems)
    if not found.sensors:
        raise ManifestError([Problem("the manifest is empty", filename)])
    return list(found.sensors)


def inspect_text(text: str, filename: str) -> Inspection:
    """The Sensors in a YAML text, beside which there may be documents of other kinds."""
    return _inspect(text, filename, _is_something_else)


def _inspect(text: str, filename: str, passed_over: Callable[[Any], bool]) -> Inspection:
    tree = read_tree(text, filename)
    problems = list(tree.problems)
    sensors: dict[tuple[str, str], SensorManifest] = {}
    others = 0
    for node in tree.documents:
        document, data = Document(node, tree.source), plain(node)
        if passed_over(data):
            others += 1
            continue
        try:
            manifest = validated(SensorManifest, KIND, data, document.written)
        except Flawed as error:
            problems += map(document.problem, error.flaws)
            continue
        manifest.attach_warnings(map(document.problem, _warnings(manifest)))
        if sensors.setdefault((manifest.namespace, manifest.name), manifest) is not manifest:
            flaw = Flaw(("metadata", "name"), f"two sensors of this file are named `{manifest.name}`")
            problems.append(document.problem(flaw))
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
    return Inspection(list(sensors.values()), problems, others)


def _is_something_else(data: Any) -> bool:
    """An EventSource, a Kubernetes object; but not a Sensor that is misspelt."""
    kind, api_version = (data.get("kind"), data.get("apiVersion")) if isinstance(data, Mapping) else (None, None)
    if not isinstance(kind, str) or not isinstance(api_version, str) or not kind or kind == KIND:
        return False
    return api_version not in API_VERSIONS or not get_close_matches(kind.lower(), [KIND.lower()], cutoff=0.7)


def make_manifest(data: Mapping[str, Any]) -> SensorManifest:
    """A Sensor made by a program. Raises `ManifestError`, whose problems name fields instead of lines."""
    try:
        manifest = validated(SensorManifest, KIND, data, lambda _: None)
    except Flawed as error:
        raise ManifestError([_unplaced(flaw) for flaw in error.flaws]) from None
    manifest.attach_warnings(map(_unplaced, _warnings(manifest)))
    return manifest


def _warnings(manifest: SensorManifest) -> Iterator[Flaw]:
    for flaw in spec_warnings(manifest.spec):
        yield Flaw(("spec", *flaw.path), flaw.message)


def _unplaced(flaw: Flaw) -> Problem:
    column = "" if flaw.index is None else f" (column {flaw.index + 1})"
    return Problem(f"{flaw.message}{column}", _dotted(flaw.path))


def _dotted(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.lstrip(".") or "manifest"
