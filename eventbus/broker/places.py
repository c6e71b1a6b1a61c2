"""Where the embedded broker keeps things on this machine.

=================== ======================== =================================================================
what                set by                   default
=================== ======================== =================================================================
jars                `EVENTBUS_CACHE_DIR`     the user's cache directory, `kafka-eventbus`; may be deleted any time
data, state, log    `EVENTBUS_DATA_DIR`      the user's data directory, `kafka-eventbus`; survives restarts
=================== ======================== =================================================================
"""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_data_path

from eventbus.jvm.jars import Software
from eventbus.jvm.places import from_environment

KAFKA_VERSION = "4.3.1"
KAFKA = Software(
    title=f"Apache Kafka {KAFKA_VERSION}",
    folder=f"kafka-{KAFKA_VERSION}",
    package="eventbus.broker",
    extra="broker",
    mebibytes=100,
)
"""Its lock is what Ivy resolves for `org.apache.kafka:kafka_2.13` plus `log4j-slf4j-impl`, for its log."""


def home_directory() -> Path:
    """The directory that holds everything about this user's own broker."""
    return from_environment("EVENTBUS_DATA_DIR", user_data_path("kafka-eventbus")) / "broker"
