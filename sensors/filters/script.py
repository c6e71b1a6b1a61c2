"""Script filters: Lua, run by whoever runs scripts."""

from __future__ import annotations

from sensors.filters.candidate import Candidate, Check, Rejection, ScriptError, Scripts
from sensors.paths import MISSING

REASON = "script"


def compile_script(source: str, scripts: Scripts) -> Check:
    passes = scripts.lua_filter(source)

    def check(candidate: Candidate) -> Rejection | None:
        data = candidate.event.data
        if candidate.document is MISSING or data is None:
            return Rejection(REASON, candidate.unreadable)
        try:
            if passes(data):
                return None
        except ScriptError as error:
            return Rejection(REASON, str(error))
        return Rejection(REASON, "the script did not return true")

    return check
