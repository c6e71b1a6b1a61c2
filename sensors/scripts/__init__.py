"""Lua and jq, run in a process of their own. See `sensors.scripts.host`."""

from sensors.scripts.host import ScriptHost, check_script

__all__ = ["ScriptHost", "check_script"]
