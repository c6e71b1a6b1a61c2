"""Points in time that a cron expression names, in a time zone. A pure function: it never asks what time it is.

Daylight saving is handled as Debian's cron does it: what falls into the hour that is skipped happens right after it,
and what falls into the hour that is repeated happens once.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = 5
_PUT_BACK = 3 * 3_600_000
"""In milliseconds: farther than clocks are ever put back."""
_LAST = 250_000_000_000_000
"""In milliseconds since 1970, some time before dates end."""


class Schedule:
    """A cron expression with five fields, or one of `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`."""

    def __init__(self, cron: str, timezone: str = "UTC") -> None:
        """Raises `ValueError` with half a sentence."""
        self.cron = cron
        self.timezone = timezone or "UTC"
        try:
            self._zone = ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"must be in a time zone such as `Europe/Berlin`, which `{timezone}` is not") from None
        self._expression = _NICKNAMES.get(cron.strip(), cron.strip()).replace("?", "*")
        self._known = (0, 0)
        """The last answer: between these two there is no tick."""
        self._check()

    def _check(self) -> None:
        if len(self._expression.split()) != _FIELDS:
            raise ValueError(f"must be a cron expression with five fields such as `30 8 * * 1-5`, not `{self.cron}`")
        try:
            CronSim(self._expression, datetime.fromtimestamp(0, self._zone))
        except CronSimError as error:
            raise ValueError(f"must be a cron expression such as `30 8 * * 1-5`: {error}") from None
        if self.next_after(0) is None:
            raise ValueError(f"must name a time that comes, which `{self.cron}` does not")

    def next_after(self, moment: int) -> int | None:
        """The first tick after a moment, both in milliseconds since 1970; None where there is none for decades."""
        if not 0 <= moment < _LAST:
            return None
        since, tick = self._known
        if since <= moment < tick:
            return tick
        for found in CronSim(self._expression, self._before(moment)):
            tick = round(found.timestamp() * 1000)
            if tick > moment:
                self._known = moment, tick
                return tick
        return None

    def _before(self, moment: int) -> datetime:
        """Where to look from. Where clocks were put back, a time of day may mean two moments: begin before both."""
        start, earlier = (datetime.fromtimestamp(each / 1000, self._zone) for each in (moment, moment - _PUT_BACK))
        return start if start.utcoffset() == earlier.utcoffset() else earlier

    def __repr__(self) -> str:
        return f"Schedule({self.cron!r}, {self.timezone!r})"
