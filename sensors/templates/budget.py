"""How much one rendering may do. Templates and events come from outside, so every loop and every copy is counted."""

from __future__ import annotations

from sensors.templates.errors import TemplateError

MAX_STEPS = 200_000
MAX_TEXT = 1024 * 1024
"""Characters of the output, and of every text on the way."""
MAX_NESTING = 100
"""Levels of lists and objects."""
_CHARACTERS_PER_STEP = 64  # copying text is cheap


class Budget:
    """The steps that are left for one rendering."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise TemplateError(f"the template takes more than {MAX_STEPS:,} steps")

    def spend_text(self, length: int) -> None:
        """Ask before a text of this length is made."""
        self.check_text(length)
        self.spend(1 + length // _CHARACTERS_PER_STEP)

    def check_text(self, length: int) -> None:
        if length > MAX_TEXT:
            raise TemplateError(f"the template makes a text of more than {MAX_TEXT:,} characters")

    def check_nesting(self, depth: int) -> None:
        if depth > MAX_NESTING:
            raise TemplateError(f"a value is nested more than {MAX_NESTING} levels deep")
