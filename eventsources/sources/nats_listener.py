"""A subscription of NATS whose messages are taken in portions, by somebody who may take a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from nats import errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from eventsources.base import SourceError, Stop
from sensors.actions.nats_client import TIMEOUT_SECONDS, NatsConnector, NoConnection

MOST_AT_ONCE = 100
"""Messages that are taken in one go."""
MOST_WAITING = 10_000
"""Messages that wait to be taken; what comes then is lost."""
_WAIT_SECONDS = 0.5
"""How long to wait for messages before looking whether to stop."""

log = logging.getLogger("eventbus.source")


class NatsListener:
    """Listens to one subject, until there is an error or no more need."""

    def __init__(self, connector: NatsConnector, subject: str, queue: str) -> None:
        self._connector = connector
        self._subject, self._queue = subject, queue
        self._lost = 0
        self._refusal: Exception | None = None

    def listen(self, take: Callable[[Sequence[Msg]], None], stop: Stop) -> None:
        """Raises `SourceError`, and what `take` raises."""
        self._lost, self._refusal = 0, None
        try:
            asyncio.run(self._listen(take, stop))
        except (NoConnection, errors.Error, OSError, TimeoutError) as error:
            raise SourceError(f"NATS: {self._connector.shown(error) or 'no answer'}") from None

    async def _listen(self, take: Callable[[Sequence[Msg]], None], stop: Stop) -> None:
        connection = await self._connector.connect(self._on_error)
        try:
            subscription = await connection.subscribe(self._subject, queue=self._queue, pending_msgs_limit=MOST_WAITING)
            await asyncio.wait_for(connection.has_got_everything(), TIMEOUT_SECONDS)
            while not stop.is_set():
                if self._refusal is not None:
                    raise self._refusal
                messages = await _read(subscription)
                if messages:
                    await asyncio.to_thread(take, messages)
                self._report_losses()
        finally:
            await connection.give_up()

    def _on_error(self, error: Exception) -> None:
        if isinstance(error, errors.SlowConsumerError):
            self._lost += 1
        else:
            self._refusal = error if isinstance(error, errors.Error) else errors.Error(str(error))

    def _report_losses(self) -> None:
        if self._lost:
            log.warning("%d messages of `%s` came faster than they could be taken", self._lost, self._subject)
            self._lost = 0


async def _read(subscription: Subscription) -> list[Msg]:
    """What is there, after a while at most."""
    try:
        found = [await subscription.next_msg(_WAIT_SECONDS)]
    except errors.TimeoutError:
        return []
    while subscription.pending_msgs and len(found) < MOST_AT_ONCE:
        found.append(await subscription.next_msg(_WAIT_SECONDS))
    return found
