"""The process that runs scripts. It is started as a file, alone: it must not import anything of ours.

Lua is version 5.1, as in argo-events. Every run has a new state, so that no event sees what another one left behind.
"""

from __future__ import annotations

import json
import math
import re
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import IO, Any

MEMORY_BYTES = 512 << 20
"""Of the whole process, of which Python needs a tenth."""
LUA_MEMORY_BYTES = 32 << 20
LUA_INSTRUCTIONS = 5_000_000
MAX_DEPTH = 64
MAX_ANSWER = 8 << 20
_LENGTH = struct.Struct(">I")
_EXACT = 2**53


class Refused(Exception):
    """What the user is told."""


# --- Lua ------------------------------------------------------------------------------------------------------------

_SANDBOX = """
local limit, longest = ...
local globals = _G
local error, pcall, pairs, rep, sethook = error, pcall, pairs, string.rep, debug.sethook
local exhausted = "the script ran for more than " .. limit .. " instructions"
local over = false

sethook(function() over = true error(exhausted, 0) end, "", limit)

-- What the hook raises is caught by nobody.
local function unless_over(...)
    if over then error(exhausted, 0) end
    return ...
end
local function pcall_(...) return unless_over(pcall(...)) end

local function rep_(text, times)
    if #text * times > longest then error("string.rep: the text would be too long", 2) end
    return rep(text, times)
end

local function only(library, names)
    local kept = {}
    for name in names:gmatch("%S+") do kept[name] = library[name] end
    return kept
end
local kept = only(_G, "assert error getmetatable ipairs next pairs rawequal rawget rawset select setmetatable "
    .. "tonumber tostring type unpack")
kept.pcall = pcall_
kept.string = only(string, "byte char find format gmatch gsub len lower match reverse sub upper")
kept.string.rep = rep_
kept.table = only(table, "concat insert maxn remove sort")
kept.math = only(math, "abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min "
    .. "modf pi pow rad sin sinh sqrt tan tanh")
getmetatable("").__index = kept.string
for name in pairs(globals) do globals[name] = nil end
for name, value in pairs(kept) do globals[name] = value end
globals._G = globals
"""


def lua_result(source: str, data: bytes) -> Any:
    """What a script returns, as Python objects."""
    from lupa import lua51  # noqa: PLC0415 - a sensor without Lua does not need it

    if "\x1b" in source:
        raise Refused("a script must be text")  # and not byte code, which Lua does not verify
    runtime = lua51.LuaRuntime(register_eval=False, register_builtins=False, max_memory=LUA_MEMORY_BYTES)
    try:
        runtime.execute(_SANDBOX, LUA_INSTRUCTIONS, LUA_MEMORY_BYTES // 8)
        runtime.globals()["event"] = _to_lua(runtime, json.loads(data))
        result = runtime.execute(source)
        if isinstance(result, tuple):
            result = result[-1]  # as in argo-events
        return _from_lua(lua51, result, 0)
    except lua51.LuaMemoryError:
        raise Refused(f"the script needed more than {LUA_MEMORY_BYTES >> 20} MiB of memory") from None
    except lua51.LuaError as error:
        raise Refused(_lua_message(str(error))) from None
    except RecursionError:
        raise Refused("the data is nested too deeply") from None
    except UnicodeError:
        raise Refused("the script returned a text that is not UTF-8") from None


def check_lua(source: str) -> None:
    from lupa import lua51  # noqa: PLC0415

    if "\x1b" in source:
        raise Refused("a script must be text")
    try:
        lua51.LuaRuntime(register_eval=False, register_builtins=False, max_memory=LUA_MEMORY_BYTES).compile(source)
    except lua51.LuaError as error:
        raise Refused(_lua_message(str(error))) from None


def _lua_message(text: str) -> str:
    """Without the traceback, and without what Lua takes for the name of a file."""
    first = text.partition("\nstack traceback:")[0]
    named = re.match(r"(?:error loading code: )?\[string \"[^\n]*?\"\]:(\d+): (.*)", first, re.DOTALL)
    return f"{named[2]} in line {named[1]}" if named else first


def _to_lua(runtime: Any, value: Any) -> Any:
    """Tables of plain values. Null is nil, which in Lua is not there; as in argo-events."""
    match value:
        case dict():
            return runtime.table_from({key: _to_lua(runtime, each) for key, each in value.items() if each is not None})
        case list():
            return runtime.table_from([_to_lua(runtime, each) for each in value if each is not None])
        case bool() | str():
            return value
        case int() | float():
            return _float(value)
    return None


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _from_lua(lua: Any, value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise Refused(f"the script returned tables nested more than {MAX_DEPTH} deep")
    match value:
        case None | bool() | str():
            return value
        case int():
            return value
        case float():
            if not math.isfinite(value):
                raise Refused(f"the script returned {value}, which JSON cannot express")
            return int(value) if value.is_integer() and abs(value) <= _EXACT else value
    kind = lua.lua_type(value)
    if kind != "table":
        raise Refused(f"the script returned a {kind or 'foreign object'}, which JSON cannot express")
    items = {_key(key): _from_lua(lua, each, depth + 1) for key, each in value.items()}
    return _list_or_object(items)


def _key(key: Any) -> int | str:
    if isinstance(key, str):
        return key
    if isinstance(key, int | float) and not isinstance(key, bool):
        return int(key) if float(key).is_integer() else str(key)
    raise Refused("the script returned a table with keys that are neither texts nor numbers")


def _list_or_object(items: dict[int | str, Any]) -> Any:
    """A table with indexes is a list; one that has hardly any of them is not, whatever its highest index is."""
    indexes = [key for key in items if isinstance(key, int) and key > 0]
    if items and len(indexes) == len(items) and max(indexes) <= 2 * len(items) + 8:
        return [items.get(index) for index in range(1, max(indexes) + 1)]
    return {str(key): items[key] for key in sorted(items, key=str)}


# --- jq -------------------------------------------------------------------------------------------------------------

_OUTSIDE = (
    "input inputs now localtime strflocaltime($format) halt halt_error halt_error($code) "
    "input_filename input_line_number get_search_list modulemeta"
)
_JQ_SANDBOX = (
    "".join(f'def {name}: error("`{name.partition("(")[0]}` is not possible here");' for name in _OUTSIDE.split())
    + "def env: {}; def debug: .; def debug(message): .; def stderr: .; {} as $ENV |\n"
)
"""Ours hide the functions that look outside. After them jq's grammar has no place for `import` and `include`."""


@lru_cache(maxsize=64)
def jq_program(source: str) -> Any:
    import jq  # noqa: PLC0415 - a sensor without jq does not need it

    try:
        return jq.compile(_JQ_SANDBOX + source)
    except ValueError as error:
        raise Refused(_jq_message(str(error))) from None


def _jq_message(text: str) -> str:
    """The first complaint, in lines of the user's program."""
    first = text.partition("\n")[0].removeprefix("jq: error: ")
    own = re.sub(r" at <top-level>, line (\d+)", lambda found: f" in line {max(1, int(found[1]) - 1)}", first)
    return own.rstrip(":")


def jq_result(source: str, data: bytes) -> Any:
    """The first output of a program, as Python objects."""
    program = jq_program(source)
    try:
        return program.input_text(data.decode()).first()
    except StopIteration:
        raise Refused("the jq program has no output") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"the jq program failed: {error}") from None


# --- requests -------------------------------------------------------------------------------------------------------


def _transformed(language: str, result: Any) -> bytes:
    if not isinstance(result, dict | list) or (language == "jq" and isinstance(result, list)):
        raise Refused("the jq program must make an object" if language == "jq" else "the script must return a table")
    answer = json.dumps(result, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if len(answer) > MAX_ANSWER:
        raise Refused(f"the new data is larger than {MAX_ANSWER >> 20} MiB")
    return answer


def _checked(check: Callable[[str], Any]) -> Callable[[str, bytes], bytes]:
    def task(source: str, _data: bytes) -> bytes:
        check(source)
        return b""

    return task


TASKS: dict[bytes, Callable[[str, bytes], bytes]] = {
    b"check-lua": _checked(check_lua),
    b"check-jq": _checked(jq_program),
    b"lua-filter": lambda source, data: b"true" if lua_result(source, data) is True else b"false",
    b"lua-transform": lambda source, data: _transformed("lua", lua_result(source, data)),
    b"jq-transform": lambda source, data: _transformed("jq", jq_result(source, data)),
}


def answer(task: bytes, source: bytes, data: bytes) -> bytes:
    try:
        return b"+" + TASKS[task](source.decode(), data)
    except Refused as error:
        return b"-" + str(error).encode("utf-8", "replace")


def _part(stream: IO[bytes]) -> bytes:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise SystemExit  # nobody is there any more
    [length] = _LENGTH.unpack(head)
    return stream.read(length)


def main() -> None:
    seconds = float(sys.argv[1])
    for limit, value in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        with suppress(ValueError, OSError):  # a lower limit is in force already
            resource.setrlimit(limit, (value, value))
    while True:
        task, source, data = (_part(sys.stdin.buffer) for _ in range(3))
        signal.setitimer(signal.ITIMER_PROF, seconds)  # whose signal ends this process
        found = answer(task, source, data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(_LENGTH.pack(len(found)) + found)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
