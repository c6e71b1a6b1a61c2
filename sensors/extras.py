"""Packages that only some actions and event sources need: they are extras of this one."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec


def lacking(extra: str | None, modules: Iterable[str]) -> str | None:
    """What has to be installed before these modules can be used."""
    if all(map(_is_installed, modules)):
        return None
    return f"this needs packages that are not installed: install `kafka-eventbus[{extra}]`"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False
