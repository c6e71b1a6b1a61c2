"""Keeps the hooks of one EventSource right, in a thread of its own; receiving events does not wait for it.

Of several replicas the one that is elected talks to the services, so that they are asked once and no two make the same
hook. Every term begins with a look. It is also what makes the end safe: who leaves gives its term up and waits whether
somebody takes over. Hooks are removed only by a replica that could then become the leader again, and while it is: one
that comes later begins with a look of its own, and finds that they are gone.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event as Flag
from typing import TypeAlias

from eventbus.clock import SystemClock
from eventbus.errors import ConfigError, EventBusError
from eventbus.ports import Clock
from eventsources.base import Identity
from eventsources.election.ports import Election
from eventsources.metrics import SourceMetrics
from eventsources.registration.forge import Forge, ForgeError
from eventsources.registration.plan import Place, plan
from sensors.secrets import Secret

_GLANCE_SECONDS = 2.0
"""How often to see whether it is time for a look, or whether a secret has changed."""
_LOOK_SECONDS = 3600.0
_CONFIRM_SECONDS = 60.0
"""Until the next look where one has changed something: should another replica have done so, too, it comes out."""
_WRITES_APART = 1.0
"""GitHub asks for it."""
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 600.0
_SUCCESSION_SECONDS = 5.0
"""Within which another replica takes over: twice as long as a contender for a lease waits between two looks."""
_RETURN_SECONDS = 3.0
_REMOVAL_SECONDS = 10.0

log = logging.getLogger("eventbus.source")

GoOn: TypeAlias = Callable[[], bool]
Wait: TypeAlias = Callable[[float], object]


class Registration:
    """The hooks of one event. Remembers what it has done and said, and when to look again."""

    def __init__(self, identity: Identity, forge: Forge, metrics: SourceMetrics, *, removed_at_end: bool) -> None:
        self.removed_at_end = removed_at_end
        self._identity = identity
        self._forge = forge
        self._metrics = metrics
        self._written: dict[Place, Secret] = {}
        """The secret that a hook was last given by us: no service tells what it is."""
        self._told: dict[Place | None, str] = {}
        self._seen: tuple[Secret, ...] = ()
        self._pause = _FIRST_PAUSE
        metrics.expect_hooks(identity)

    def secrets_have_changed(self) -> bool:
        try:
            return self._forge.secrets() != self._seen
        except ConfigError:
            return False  # the next look says so

    def look(self, go_on: GoOn, wait: Wait) -> float:
        """Put right what is wrong, and return after how many seconds to look again."""
        with suppress(ConfigError):  # the first place comes upon it, too
            self._seen = self._forge.secrets()
        failures: list[ForgeError] = []
        changed = False
        for place in self._forge.places:
            if not go_on():
                return 0.0
            try:
                changed |= self._put_right(place, wait)
                self._told.pop(place, None)
                self._told.pop(None, None)
            except ForgeError as error:
                self._tell(None if error.everywhere else place, error)
                failures.append(error)
                if error.everywhere:
                    break
        return self._next(failures, changed=changed)

    def remove(self, go_on: GoOn) -> None:
        for place in self._forge.places:
            if not go_on():
                log.warning("%s: the hook of %s stays: there is no time left", self._identity, place.label)
                continue
            try:
                for hook in self._forge.hooks(place):
                    if hook.url == self._forge.url:
                        self._forge.remove(place, hook.id)
                        self._done("removed", place)
            except (ForgeError, ConfigError) as error:
                log.warning("%s: the hook of %s stays: %s", self._identity, place.label, error)

    def close(self) -> None:
        self._forge.close()

    def _put_right(self, place: Place, wait: Wait) -> bool:
        """Whether hooks were made or removed. Raises `ForgeError`."""
        forge = self._forge
        try:
            secret, settings = forge.secret(), forge.settings()
            known = secret is None or self._written.get(place) == secret
            change = plan(forge.hooks(place), forge.url, settings, secret_is_right=known)
            for id in change.remove:
                forge.remove(place, id)
                self._done("removed", place)
                wait(_WRITES_APART)
            if change.create:
                forge.create(place, settings, secret)
            elif change.update is not None:
                forge.update(place, change.update, settings, secret)
        except ConfigError as error:
            raise ForgeError(str(error), everywhere=True) from None
        if secret is not None:
            self._written[place] = secret
        outcome = "created" if change.create else "kept" if change.update is None else "updated"
        self._done(outcome, place)
        if outcome != "kept":
            wait(_WRITES_APART)
        return change.create or bool(change.remove)

    def _done(self, outcome: str, place: Place) -> None:
        self._metrics.hook(self._identity, outcome)
        if outcome != "kept":
            log.info("%s: the hook of %s is %s", self._identity, place.label, outcome)

    def _tell(self, place: Place | None, error: ForgeError) -> None:
        """Once, and not with every look."""
        self._metrics.hook(self._identity, "failed")
        if self._told.get(place) != str(error):
            what = "hooks are" if place is None else f"the hook of {place.label} is"
            log.warning("%s: %s not looked after: %s", self._identity, what, error)
        self._told[place] = str(error)

    def _next(self, failures: Sequence[ForgeError], *, changed: bool) -> float:
        jitter = random.uniform(1.0, 1.2)  # noqa: S311 - so that not all come back at once
        if not failures:
            self._pause = _FIRST_PAUSE
            return jitter * (_CONFIRM_SECONDS if changed else _LOOK_SECONDS)
        pause = _LONGEST_PAUSE if all(each.lasting for each in failures) else self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return jitter * max(pause, *(each.seconds or 0.0 for each in failures))


class Registrar:
    """The hooks of all events of one EventSource. `elect` takes part in its election."""

    def __init__(
        self,
        registrations: Sequence[Registration],
        elect: Callable[[], Election],
        stop: Flag,
        clock: Clock | None = None,
    ) -> None:
        self._registrations = registrations
        self._elect = elect
        self._stop = stop
        self._clock = clock or SystemClock()

    def run(self) -> None:
        """Until `stop` is set, whatever fails."""
        while not self._stop.is_set():
            try:
                self._take_part()
            except EventBusError as error:
                log.warning("hooks are not looked after: %s", error)
            except Exception:  # a fault of ours must not keep events from being received
                log.exception("hooks are not looked after")
            self._stop.wait(_LONGEST_PAUSE)
        for registration in self._registrations:
            registration.close()

    def _take_part(self) -> None:
        election = self._elect()
        try:
            while election.wait_until_leading(self._stop) is not None:
                self._keep_right(election)
            led = election.leading
        finally:
            election.close()
        if led:
            self._remove_unless_followed()

    def _keep_right(self, election: Election) -> None:
        def goes_on() -> bool:
            return election.leading and not self._stop.is_set()

        due = dict.fromkeys(self._registrations, 0.0)
        while goes_on():
            for registration in self._registrations:
                if self._clock.monotonic() >= due[registration] or registration.secrets_have_changed():
                    pause = registration.look(goes_on, self._stop.wait)
                    due[registration] = self._clock.monotonic() + pause
            self._stop.wait(_GLANCE_SECONDS)

    def _remove_unless_followed(self) -> None:
        leaving = [each for each in self._registrations if each.removed_at_end]
        if not leaving:
            return
        Flag().wait(_SUCCESSION_SECONDS)
        election = self._elect()
        try:
            if election.wait_until_leading(_After(_RETURN_SECONDS, self._clock)) is None:
                log.info("the hooks stay: another replica looks after them")
                return
            end = _After(_REMOVAL_SECONDS, self._clock)
            for registration in leaving:
                registration.remove(lambda: election.leading and not end.is_set())
        finally:
            election.close()


class _After(Flag):
    """Set when so many seconds are over."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._end = clock.monotonic() + seconds

    def is_set(self) -> bool:
        return self._clock.monotonic() >= self._end
