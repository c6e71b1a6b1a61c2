"""Fields that every log line of a sensor carries (`loggingFields`), whoever writes it on the sensor's threads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar

FIELDS_ATTRIBUTE = "logging_fields"
"""Of a log record: the fields, by name. They are also attributes of their own where there is none of that name."""

_fields: ContextVar[Mapping[str, str] | None] = ContextVar("logging_fields", default=None)


def carry(fields: Mapping[str, str]) -> None:
    """From now on, in this thread and in those that inherit its context."""
    _fields.set(fields)


class CarriedFields(logging.Filter):
    """Adds them to a record. For loggers and handlers alike; a record that passes several is changed once."""

    def filter(self, record: logging.LogRecord) -> bool:
        fields = _fields.get()
        if fields and not hasattr(record, FIELDS_ATTRIBUTE):
            vars(record).update({name: value for name, value in fields.items() if not hasattr(record, name)})
            setattr(record, FIELDS_ATTRIBUTE, fields)
        return True


_carried_fields = CarriedFields()


def sensor_logger(name: str) -> logging.Logger:
    """A logger whose records carry the fields, whatever handlers the program has."""
    logger = logging.getLogger(name)
    logger.addFilter(_carried_fields)
    return logger
