"""Rewrites argo-events' manifests to our API group, and tells what they will do differently.

Only the value of `apiVersion` is changed, at its place in the text: comments, order and spelling stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from sensors.spec.base import Flaw, Path
from sensors.spec.difference import Difference
from sensors.spec.loader import Reader
from sensors.spec.positions import Document
from sensors.spec.problems import LINE_BREAK, Problem
from sensors.spec.yamltree import Node, Scalar, Tree, find, plain, read_tree

ARGO = "argoproj.io/v1alpha1"
OURS = "eventbus.dev/v1alpha1"
_KNATIVE = ".knative.dev/"

ByKind: TypeAlias = Mapping[str, Sequence[Difference]]
"""What is different, for every kind that can be converted."""


class Finding(msgspec.Struct, frozen=True):
    """One difference in behaviour that concerns a manifest, and where."""

    difference: str
    message: str
    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message} ({self.difference})"


class Conversion(msgspec.Struct, frozen=True):
    """A text that was converted."""

    text: str
    converted: int
    """How many manifests have another API group now."""
    findings: Sequence[Finding]
    problems: Sequence[Problem]
    """Why a manifest in it cannot be loaded, here or anywhere."""


def convert_text(text: str, file: str, reader: Reader[Any], differences: ByKind) -> Conversion:
    """Convert every manifest of argo-events in a YAML text. What is ours already, or something else, stays as it is."""
    tree = read_tree(text, file)
    chosen = [node for node in tree.documents if _is_argo(plain(node), differences)]
    problems = reader.inspect_text(text, file).problems
    refused = {(problem.line, problem.column) for problem in problems}
    found = [finding for node in chosen for finding in _findings(Document(node, tree.source), differences)]
    found += [finding for node in tree.documents for finding in _of_knative(Document(node, tree.source))]
    findings = [finding for finding in found if (finding.line, finding.column) not in refused]
    findings.sort(key=lambda each: (each.line, each.column))
    if tree.problems:
        return Conversion(text, 0, findings, problems)
    converted = _with_our_group(text, chosen)
    stubborn = list(_unchanged(tree, converted, differences))
    if stubborn:
        return Conversion(text, 0, findings, [*stubborn, *problems])
    return Conversion(converted, len(chosen), findings, problems)


def _is_argo(data: Any, kinds: Collection[str]) -> bool:
    return isinstance(data, dict) and data.get("kind") in kinds and data.get("apiVersion") == ARGO


def _findings(document: Document, differences: ByKind) -> Iterator[Finding]:
    data = plain(document.root)
    for each in differences[data["kind"]]:
        for path in each.places(data):
            yield _finding(document, each.name, path, each.meaning)


def _of_knative(document: Document) -> Iterator[Finding]:
    """Nobody should believe that it was converted because nothing was said."""
    data = plain(document.root)
    if isinstance(data, dict) and _KNATIVE in str(data.get("apiVersion")):
        message = f"a `{data.get('kind')}` of Knative stays as it is: write a Sensor or an EventSource in its place"
        yield _finding(document, "knative", ("apiVersion",), message)


def _finding(document: Document, name: str, path: Path, meaning: str) -> Finding:
    problem = document.problem(Flaw(path, meaning, about_key=True))
    return Finding(name, meaning, problem.file, problem.line or 0, problem.column or 0)


def _with_our_group(text: str, documents: Sequence[Node]) -> str:
    starts = [0, *(found.end() for found in LINE_BREAK.finditer(text))]
    for node in reversed(documents):  # from the end, so that what is before keeps its place
        version = find(node, ("apiVersion",))
        if isinstance(version, Scalar):
            at = starts[version.position.line - 1] + version.position.column - 1
            end = at + len(version.written)
            text = text[:at] + text[at:end].replace(ARGO, OURS) + text[end:]
    return text


def _unchanged(tree: Tree, converted: str, kinds: Collection[str]) -> Iterator[Problem]:
    """Manifests whose `apiVersion` is not simply written, so that changing it in place changes nothing, or more."""
    after = read_tree(converted, tree.source.file).documents
    for node, other in zip(tree.documents, after, strict=True):
        data = plain(node)
        expected = {**data, "apiVersion": OURS} if _is_argo(data, kinds) else data
        if plain(other) != expected:
            message = f"`apiVersion` is not simply written here; write `apiVersion: {OURS}`"
            yield Document(node, tree.source).problem(Flaw(("apiVersion",), message, about_key=True))
