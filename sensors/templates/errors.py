"""What can go wrong with a template: when it is read, and when it meets an event."""

from __future__ import annotations

from eventbus.errors import ConfigError, EventBusError


class TemplateSyntaxError(ConfigError):
    """A template cannot be used. `index` is the character it is about, counted from 0."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(f"{message} (character {index + 1})")
        self.message = message
        self.index = index


class TemplateError(EventBusError):
    """A template cannot be rendered for this event, now or ever."""
