"""The `log` action: one structured log line per action. The simplest way to see a trigger fire."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictInt

from eventbus.logfields import fields_logger
from sensors.actions.base import ActionCall, ActionContext, SpecModel

_logger = fields_logger("eventbus.action")


class LogSpec(SpecModel):
    """Write a log line."""

    intervalSeconds: Annotated[StrictInt, Field(ge=0)] = 0
    """Write at most one line in this many seconds; 0 writes every one."""


class LogAction:
    """Logs which events made which trigger fire. The facts are also attributes of the log record, for JSON logs."""

    Spec: ClassVar[type[SpecModel]] = LogSpec

    def __init__(self, spec: LogSpec, _context: ActionContext, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval = spec.intervalSeconds
        self._monotonic = monotonic
        self._lock = Lock()
        self._last: float | None = None

    def invoke(self, call: ActionCall) -> str:
        if not self._due():
            return "skipped"
        events: dict[str, Any] = {name: event.id for name, event in call.events.items()}
        events |= {name: [event.id for event in several] for name, several in call.batches.items()}
        shown = {name: ids if isinstance(ids, str) else "+".join(ids) for name, ids in events.items()}
        _logger.info(
            "sensor=%s trigger=%s action=%s events=%s",
            call.sensor,
            call.trigger,
            call.id,
            ",".join(f"{name}:{ids}" for name, ids in shown.items()),
            extra={"sensor": call.sensor, "trigger": call.trigger, "action_id": call.id, "events": events},
        )
        return "logged"

    def close(self) -> None:
        pass

    def _due(self) -> bool:
        with self._lock:
            now = self._monotonic()
            if self._last is not None and now - self._last < self._interval:
                return False
            self._last = now
            return True
