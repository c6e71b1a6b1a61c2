"""How everything on the log is called: topics, consumer groups, transactional ids.

Names are built from a namespace, a bus and a sensor, joined by `-`. All three may contain `-` themselves, so two
different triples can yield the same topic (`a-b`/`c`/`d` and `a`/`b`/`c-d`). That is not prevented here, where only
one triple is known, but where it would do harm: the identity record in the state topic names its triple, and a sensor
that finds another one there refuses to start.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from eventbus.errors import ConfigError

MAX_TOPIC_LENGTH = 249  # Kafka's limit
_CONTROL = "control"
_SOURCES = "sources"
_REJECTS = "rejects"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class Stage(StrEnum):
    """The three steps from an event to an invoked action."""

    MATCH = "match"
    JOIN = "join"
    INVOKE = "invoke"


class Kind(StrEnum):
    """The topics that belong to one sensor."""

    TRIGGER = "trigger"
    ACTION = "action"
    STATE = "state"
    INVOCATION = "invocation"
    DLQ = "dlq"


class BusName(msgspec.Struct, frozen=True):
    """A bus: the shared event topic."""

    namespace: str = "default"
    bus: str = "default"

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        check_name("bus", self.bus)
        for kind in (*Kind, _CONTROL, _SOURCES, _REJECTS):
            if f"-{self.bus}".endswith(f"-{kind}"):
                raise ConfigError(f"a bus cannot be called `{self.bus}`: `{kind}` at the end is for other topics")

    @property
    def event_topic(self) -> str:
        return f"{self.namespace}-{self.bus}"

    @property
    def source_topic(self) -> str:
        """What event sources that run once have to remember."""
        return f"{self.event_topic}-{_SOURCES}"

    @property
    def reject_topic(self) -> str:
        """The dead letters of event sources."""
        return f"{self.event_topic}-{_REJECTS}"


class SensorName(msgspec.Struct, frozen=True):
    """A sensor on a bus, and all names derived from it."""

    bus: BusName
    sensor: str

    def __post_init__(self) -> None:
        check_name("sensor", self.sensor)
        longest = max((self.topic(kind) for kind in Kind), key=len)
        if len(longest) > MAX_TOPIC_LENGTH:
            raise ConfigError(
                f"the topic `{longest}` would be {len(longest)} characters long and Kafka allows {MAX_TOPIC_LENGTH}: "
                "shorten the name of the namespace, the bus or the sensor"
            )

    def __str__(self) -> str:
        return f"{self.bus.namespace}/{self.bus.bus}/{self.sensor}"

    @property
    def event_topic(self) -> str:
        return self.bus.event_topic

    @property
    def prefix(self) -> str:
        return f"{self.bus.event_topic}-{self.sensor}"

    def topic(self, kind: Kind) -> str:
        return f"{self.prefix}-{kind}"

    @property
    def control_topic(self) -> str:
        """What operators want of the sensor: one compacted partition that every replica follows."""
        return f"{self.prefix}-{_CONTROL}"

    def input_topic(self, stage: Stage) -> str:
        """What a stage reads."""
        match stage:
            case Stage.MATCH:
                return self.event_topic
            case Stage.JOIN:
                return self.topic(Kind.TRIGGER)
            case Stage.INVOKE:
                return self.topic(Kind.ACTION)

    def group(self, stage: Stage) -> str:
        return f"{self.prefix}-{stage}"

    def transactional_id(self, stage: Stage, slot: str) -> str:
        """A restarted replica of the same slot takes over its predecessor's unfinished transaction at once."""
        return f"{self.prefix}-{stage}-{slot}"


def check_name(what: str, name: str) -> None:
    """Accept what Kubernetes accepts as a resource's name: it is also what Kafka accepts in a topic's."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"the {what} name `{name}` is not allowed: use lower-case letters, digits, `-` and `.`, "
            "beginning and ending with a letter or digit"
        )
