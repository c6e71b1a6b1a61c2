"""The fixtures that users of the pytest plugin get."""

from __future__ import annotations

import pytest

from eventbus import Bus, Event


def test_memory_bus(memory_bus: Bus) -> None:
    [position] = memory_bus.publish(Event.new("shop", "order"))
    assert position.topic == memory_bus.name.event_topic


@pytest.mark.kafka
def test_kafka_bus(kafka_bus: Bus) -> None:
    [position] = kafka_bus.publish(Event.new("shop", "order"))
    assert position.topic == kafka_bus.name.event_topic
