"""What to do about the hooks of one place: pure, and the same whoever asks, however often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec


class Place(msgspec.Struct, frozen=True):
    """A repository, an organization, a project or a group: whatever has hooks of its own."""

    label: str
    """For people: ``the repository `a/b` ``."""
    path: str
    """Where its hooks are, below the address of the API."""


def hooks_below(*names: str) -> str:
    """The path of hooks; whatever the names consist of."""
    return "".join(f"/{quote(name, safe='')}" for name in (*names, "hooks"))


class Found(msgspec.Struct, frozen=True):
    """A hook that is there. A service never tells its secret."""

    id: str
    url: str
    settings: Mapping[str, Any]
    """As far as the service shows them."""


class Change(msgspec.Struct, frozen=True):
    """What is to be done, in this order."""

    remove: tuple[str, ...] = ()
    update: str | None = None
    create: bool = False


def plan(found: Sequence[Found], url: str, settings: Mapping[str, Any], *, secret_is_right: bool) -> Change:
    """A hook is ours by its address. `found` is in the order of age: of several of ours the oldest stays.

    Everybody comes to the same one, so that whoever looks last leaves exactly one. The others go first: GitHub takes
    no two hooks of one address whose events overlap. A setting that a service does not show is not one that differs.
    """
    ours = [each for each in found if each.url == url]
    if not ours:
        return Change(create=True)
    kept, *repeats = ours
    right = secret_is_right and all(kept.settings.get(name, value) == value for name, value in settings.items())
    return Change(tuple(each.id for each in repeats), None if right else kept.id)
