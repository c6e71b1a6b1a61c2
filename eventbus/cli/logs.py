"""The log lines of commands: for people, or one JSON object per line for a log collector."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from eventbus.logfields import FIELDS_ATTRIBUTE, CarriedFields

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", FIELDS_ATTRIBUTE}


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


def set_up_logging(level: int, log_format: LogFormat = LogFormat.TEXT) -> None:
    """Write our own log lines of this level and above to stderr, and warnings of other libraries."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if log_format is LogFormat.JSON else _TextFormatter())
    handler.addFilter(CarriedFields())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("eventbus").setLevel(level)


class _TextFormatter(logging.Formatter):
    """A sensor's own fields come behind the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        fields = getattr(record, FIELDS_ATTRIBUTE, {})
        return " ".join([super().formatMessage(record), *(f"{name}={value}" for name, value in fields.items())])


class _JsonFormatter(logging.Formatter):
    """What a record's `extra` brought along becomes further members."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD | line.keys()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
