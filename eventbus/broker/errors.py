"""What can go wrong with the embedded broker itself, apart from what the user asked for (`ConfigError`)."""

from __future__ import annotations

from eventbus.errors import EventBusError


class BrokerError(EventBusError):
    """The embedded broker cannot be fetched, started, found or stopped; the message says what to do."""
