"""What an EventBus does differently here than in argo-events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sensors.spec.base import Path, get
from sensors.spec.difference import Difference, recorder
from sensors.spec.eventbus import KafkaBus

BUS_DIFFERENCES: list[Difference] = []
difference = recorder(BUS_DIFFERENCES)


@difference(
    """It does nothing here: the client asks the brokers for their version, every stage of a sensor has a group of its
    own, nobody waits for batches to fill, and an event's key decides about its partition.""",
    *(f"spec.kafka.{field}" for field in KafkaBus.without_effect),
)
def bus_fields(manifest: Any) -> Iterator[Path]:
    for field in KafkaBus.without_effect:
        if get(manifest, "spec", "kafka", field) is not None:
            yield "spec", "kafka", field


@difference(
    "Where a sensor that has never run begins is said by its own `startFrom`, and not by the bus.",
    "spec.kafka.consumerGroup",
)
def oldest(manifest: Any) -> Iterator[Path]:
    for field in ("oldest", "startOldest"):
        if get(manifest, "spec", "kafka", "consumerGroup", field):
            yield "spec", "kafka", "consumerGroup", field
