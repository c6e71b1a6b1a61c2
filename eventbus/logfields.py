"""Fields that every log line of a sensor or event source carries (`loggingFields`), whoever writes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial

FIELDS_ATTRIBUTE = "logging_fields"
"""Of a log record: the fields, by name. They are also attributes of their own where there is none of that name."""

_fields: ContextVar[Mapping[str, str] | None] = ContextVar("logging_fields", default=None)


def carry(fields: Mapping[str, str]) -> None:
    """From now on, in this thread and in those that inherit its context."""
    _fields.set(fields)


@contextmanager
def carrying(fields: Mapping[str, str]) -> Iterator[None]:
    """For a while, in this thread and in those that inherit its context meanwhile."""
    before = _fields.set(fields)
    try:
        yield
    finally:
        _fields.reset(before)


def inheriting(target: Callable[[], object]) -> Callable[[], object]:
    """For a new thread: what it runs carries what is carried here and now."""
    return partial(copy_context().run, target)


class CarriedFields(logging.Filter):
    """Adds them to a record. For loggers and handlers alike; a record that passes several is changed once."""

    def filter(self, record: logging.LogRecord) -> bool:
        fields = _fields.get()
        if fields and not hasattr(record, FIELDS_ATTRIBUTE):
            vars(record).update({name: value for name, value in fields.items() if not hasattr(record, name)})
            setattr(record, FIELDS_ATTRIBUTE, fields)
        return True


_carried_fields = CarriedFields()


def fields_logger(name: str) -> logging.Logger:
    """A logger whose records carry the fields, whatever handlers the program has."""
    logger = logging.getLogger(name)
    logger.addFilter(_carried_fields)
    return logger
