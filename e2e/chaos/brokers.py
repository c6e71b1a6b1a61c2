"""The three brokers, of which one at a time may be dead."""

from __future__ import annotations

import asyncio
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from eventbus.broker import EmbeddedBroker

_PATIENCE = 120.0
_LOOK = 0.5


class Brokers:
    """Three nodes; every partition has three replicas, two of which must be in sync."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})

    @property
    def numbers(self) -> list[int]:
        return [node.address.number for node in self._broker.nodes]

    async def kill(self, number: int) -> None:
        await asyncio.to_thread(self._broker.kill, number)

    async def bring_back(self, number: int) -> None:
        """Returns when nothing would be lost if another one was killed."""
        await asyncio.to_thread(self._broker.restart, number)
        deadline = time.monotonic() + _PATIENCE
        while not await asyncio.to_thread(self._in_sync):
            if time.monotonic() > deadline:
                raise TimeoutError(f"broker {number} is not in sync {_PATIENCE:g} s after its restart")
            await asyncio.sleep(_LOOK)

    def _in_sync(self) -> bool:
        try:
            topics = self._admin.list_topics(timeout=5).topics.values()
        except KafkaException:
            return False
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(len(partition.isrs) == len(self._broker.nodes) for partition in partitions)
