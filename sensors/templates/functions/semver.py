"""Semantic versions: `semver` and `semverCompare`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from sensors.templates.errors import TemplateError
from sensors.templates.values import Int64, Record

_MAX_LENGTH = 256
_VERSION = re.compile(
    r"v?(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:\.(?P<patch>\d+))?(?:-(?P<pre>[0-9A-Za-z.-]+))?(?:\+(?P<meta>[0-9A-Za-z.-]+))?"
)
_CONSTRAINT = re.compile(
    r"\s*(?P<operator>=|==|!=|>=|=>|<=|=<|>|<|~>|~|\^)?\s*"
    r"v?(?P<major>\d+|[xX*])(?:\.(?P<minor>\d+|[xX*]))?(?:\.(?P<patch>\d+|[xX*]))?(?:-(?P<pre>[0-9A-Za-z.-]+))?"
    r"(?:\+[0-9A-Za-z.-]+)?\s*"
)
_RANGE = re.compile(r"\s*(\S+)\s+-\s+(\S+)\s*")

_Key: TypeAlias = tuple[int, int, int, tuple[Any, ...]]


def _semver(text: str) -> Record:
    parts = _parsed(text)
    major, minor, patch, _ = _key(parts)
    pre, meta = parts["pre"] or "", parts["meta"] or ""
    written = f"{major}.{minor}.{patch}{f'-{pre}' if pre else ''}{f'+{meta}' if meta else ''}"
    fields = {"Major": Int64(major), "Minor": Int64(minor), "Patch": Int64(patch), "Prerelease": pre, "Metadata": meta}
    return Record("*semver.Version", {**fields, "Original": text}, written)


def _parsed(text: str) -> re.Match[str]:
    found = _VERSION.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if found is None:
        raise TemplateError(f"`{text[:40]}` is not a semantic version")
    return found


def _key(parts: re.Match[str]) -> _Key:
    """Sorts as versions do: a pre-release comes before its release, numbers before words."""
    numbers = [int(parts[name] or 0) for name in ("major", "minor", "patch")]
    return numbers[0], numbers[1], numbers[2], _pre(parts["pre"])


def _semver_compare(constraint: str, version: str) -> bool:
    """Alternatives with `||`, each a list of conditions that all must hold."""
    parts = _parsed(version)
    return any(_all_hold(each, parts) for each in constraint[:_MAX_LENGTH].split("||"))


def _all_hold(conditions: str, version: re.Match[str]) -> bool:
    between = _RANGE.fullmatch(conditions)
    if between:
        conditions = f">={between[1]}, <={between[2]}"
    at = 0
    holds = True
    while at < len(conditions):
        found = _CONSTRAINT.match(conditions, at)
        if found is None or found.end() == at:
            raise TemplateError(f"`{conditions[:40]}` is not a condition for versions")
        holds = _holds(found, version) and holds
        at = found.end() + (conditions[found.end() : found.end() + 1] == ",")
    return holds


def _holds(condition: re.Match[str], version: re.Match[str]) -> bool:
    wildcards = [name for name in ("major", "minor", "patch") if (condition[name] or "x") in "xX*"]
    if version["pre"] and not condition["pre"]:
        return False  # a pre-release is meant only where one is named
    low = tuple(0 if name in wildcards else int(condition[name]) for name in ("major", "minor", "patch"))
    wanted: _Key = (low[0], low[1], low[2], _pre(condition["pre"]))
    actual = _key(version)
    high = _next_after(condition, low, wildcards)
    inside = actual >= wanted and (high is None or actual[:3] < high)
    exactly = inside if wildcards else actual == wanted
    above = actual > wanted and not (wildcards and inside)
    answers = {"=": exactly, "==": exactly, "!=": not exactly, ">": above, "<": actual < wanted}
    answers |= dict.fromkeys((">=", "=>"), actual >= wanted) | dict.fromkeys(("<=", "=<"), not above)
    return answers.get(condition["operator"] or "=", inside)


def _pre(text: str | None) -> tuple[Any, ...]:
    pre = [(0, int(each), "") if each.isdigit() else (1, 0, each) for each in (text or "").split(".") if each]
    return tuple(pre) if pre else ((2, 0, ""),)


def _next_after(condition: re.Match[str], low: tuple[int, ...], wildcards: list[str]) -> tuple[int, int, int] | None:
    """The first version that is too high for `~`, `^` and wildcards; None where there is none."""
    major, minor, patch = low
    if "major" in wildcards:
        return None
    if condition["operator"] == "^":
        if major or "minor" in wildcards:
            return major + 1, 0, 0
        return (0, minor + 1, 0) if minor or "patch" in wildcards else (0, 0, patch + 1)
    return (major + 1, 0, 0) if "minor" in wildcards else (major, minor + 1, 0)


FUNCTIONS: dict[str, Callable[..., Any]] = {"semver": _semver, "semverCompare": _semver_compare}
