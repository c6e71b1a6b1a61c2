"""The log: CloudEvents on Kafka (or in memory), topics, transactions, and the embedded broker.

>>> from eventbus import Bus, Event
>>> with Bus.memory() as bus:
...     positions = bus.publish(Event.new("shop", "order", {"id": 17}))
"""

from eventbus.bus import Bus
from eventbus.errors import ConfigError, EventBusError, InvalidEvent
from eventbus.events import Event
from eventbus.names import BusName

__all__ = ["Bus", "BusName", "ConfigError", "Event", "EventBusError", "InvalidEvent"]
