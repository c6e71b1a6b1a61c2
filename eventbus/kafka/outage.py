"""Nothing to read, or nobody to read it from?

librdkafka tries for ever to get its brokers back and mentions once, in a callback, that it has lost all of them.
Whoever reads would take that for silence. The mention may also be old, or come from idle connections that were closed,
so it is only a reason to ask.
"""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError

from eventbus.errors import FatalError
from eventbus.kafka import codes
from eventbus.kafka.complaints import Complaints
from eventbus.kafka.config import Settings

_PATIENCE = 2.0
"""Seconds: longer than the client's longest pause between two attempts to connect."""


class Outage:
    """What one client knows about its brokers."""

    def __init__(self, settings: Settings) -> None:
        self._complaints = Complaints(settings)
        self._suspected = False

    def note(self, error: KafkaError) -> None:
        """The client's callback for errors that belong to no request."""
        self._complaints.note(error)
        if error.code() == codes.ALL_BROKERS_DOWN:
            self._suspected = True

    def refusal(self, client: Consumer, doing: str) -> FatalError | None:
        """Why the brokers will not have this client, if they have said so."""
        return self._complaints.refusal(client, doing)

    def check(self, client: Consumer, topic: str, doing: str) -> None:
        """Raise while no broker answers. Costs nothing while nothing is suspected."""
        if self._suspected:
            with self._complaints.asking(client, doing):
                client.list_topics(topic, _PATIENCE)
            self._suspected = False
