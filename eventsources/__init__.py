"""What turns the outside world into events."""

from eventsources.source import EventSource

__all__ = ["EventSource"]
