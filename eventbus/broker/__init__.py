"""A real Apache Kafka for development, tests and the demo, without a container: Java and a cache of jars suffice.

>>> from eventbus.broker import EmbeddedBroker
>>> with EmbeddedBroker(ephemeral=True) as broker:  # doctest: +SKIP
...     publish_to(broker.bootstrap_servers)
"""

from __future__ import annotations

from eventbus.broker.cluster import EmbeddedBroker
from eventbus.broker.errors import BrokerError
from eventbus.broker.state import default_bootstrap_servers

__all__ = ["BrokerError", "EmbeddedBroker", "default_bootstrap_servers"]
