"""What should be there, whoever has worked it out: the plain reference machine, or the core inside Spark's workers."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import msgspec

from eventbus.formats import Source
from eventbus.names import Stage

HeldPlace: TypeAlias = tuple[str, str, str, Source]
"""Trigger, correlation key, dependency, and where the event stands."""


class Match(msgspec.Struct, frozen=True, gc=False):
    """An event that a trigger wants, and under which correlation key."""

    trigger: str
    source: Source
    key: str = ""


class Expected(msgspec.Struct, frozen=True, gc=False):
    """An action that has to be there."""

    id: str
    trigger: str
    sources: tuple[Source, ...]
    lane: tuple[object, ...]
    """What it keeps its order with."""
    origin: tuple[Stage, int, int]
    """The record that completes it: who reads it, and its partition and offset."""
    place: str
    events: tuple[str, ...]
    key: str = ""


class Expectations:
    """Everything that the checks compare what was found with.

    They may also be given only what is left when all that agrees has cancelled out on both sides: every check is a
    difference of two sets, and what is on both sides does not change it.
    """

    def __init__(self) -> None:
        self.actions: list[Expected] = []
        self.matched: dict[Match, str] = {}
        """Everything that a trigger wants, and where it stands."""
        self.to_join: set[Match] = set()
        """What of that has to be in the trigger topic."""
        self.invalid: set[str] = set()
        """Events that nobody can read."""
        self.untransformed: set[str] = set()
        """Events that a dependency could not transform."""
        self.unkeyed: Counter[tuple[str, str]] = Counter()
        """Events without a correlation key, by trigger and place, where they have to be in the dead letters."""
        self.unused: set[Match] = set()
        """Superseded, expired, flushed, seen before, or used for a firing that was suppressed."""
        self.buried: list[Match] = []
        """What of that has to be in the dead letters."""
        self.parked: list[Match] = []
        self.kept: set[HeldPlace] = set()

    @property
    def held(self) -> set[HeldPlace]:
        """What is held in the end."""
        return self.kept
