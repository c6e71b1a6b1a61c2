"""Nothing to read, or nobody to read it from?

librdkafka tries for ever to get its brokers back and mentions once, in a callback, that it has lost all of them.
Whoever reads would take that for silence. The mention may also be old, or come from idle connections that were closed,
so it is only a reason to ask.
"""

from __future__ import annotations

import logging

from confluent_kafka import Consumer, KafkaError

from eventbus.kafka import codes
from eventbus.kafka.errors import translated

_PATIENCE = 2.0
"""Seconds: longer than the client's longest pause between two attempts to connect."""

_log = logging.getLogger("eventbus.kafka")


class Outage:
    """What one client knows about its brokers."""

    def __init__(self) -> None:
        self._suspected = False

    def note(self, error: KafkaError) -> None:
        """The client's callback for errors that belong to no request."""
        _log.debug("%s", error)
        if error.code() == codes.ALL_BROKERS_DOWN:
            self._suspected = True

    def check(self, client: Consumer, topic: str, doing: str) -> None:
        """Raise while no broker answers. Costs nothing while nothing is suspected."""
        if self._suspected:
            with translated(doing):
                client.list_topics(topic, _PATIENCE)
            self._suspected = False
