"""The bus that a command works on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from eventbus.bus import Bus
    from eventbus.clock import Deadline

_PAUSE = 0.2

T = TypeVar("T")


def connect(bootstrap_servers: str | None, namespace: str, bus: str, *, verbose: bool) -> Bus:
    """Use the result as a context manager."""
    from eventbus.bus import Bus
    from eventbus.cli.logs import set_up_logging

    if verbose:
        set_up_logging(logging.DEBUG)
    return Bus.connect(bootstrap_servers, namespace=namespace, bus=bus)


def insist(call: Callable[[], T], deadline: Deadline) -> T:
    """Repeat a call while the brokers do not answer or are busy with a transaction, until the deadline."""
    import time

    from eventbus.errors import RetriableError

    while True:
        try:
            return call()
        except RetriableError:
            if deadline.over():
                raise
        time.sleep(_PAUSE)
