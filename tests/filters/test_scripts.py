"""Lua and jq: what they give, what they cannot reach, and what becomes of one that will not end.

A worker is killed by the kernel when it has used its processor time, which is short here.
"""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from sensors.filters.candidate import ScriptError
from sensors.scripts import ScriptHost, check_script

DATA = {"a": 1, "big": 2**53, "list": [1, "x", None, {"y": [True]}], "none": None, "text": "ü", "o": {"k": 1.5}}


@pytest.fixture(scope="module")
def host() -> Iterator[ScriptHost]:
    running = ScriptHost(cpu_seconds=0.3)
    yield running
    running.close()


@pytest.fixture(scope="module")
def patient_host() -> Iterator[ScriptHost]:
    """For what Lua itself has to stop, even on a slow machine."""
    running = ScriptHost(cpu_seconds=2)
    yield running
    running.close()


def _lua(host: ScriptHost, source: str) -> Any:
    return json.loads(host.lua_transform(source)(json.dumps(DATA).encode()))


def _jq(host: ScriptHost, source: str) -> Any:
    return json.loads(host.jq_transform(source)(json.dumps(DATA).encode()))


# --- Lua ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        ("return event.a == 1", True),
        ("return event.a", False),
        ("return 'true'", False),
        ("", False),
        ("local x = 1", False),
        ("return false, true", True),
        ("return event.none == nil and event.list[3].y[1]", True),
        ("return event.text:upper() ~= nil and #event.list == 3", True),
        ("return pcall(error, 'x') == false", True),
        ("return select(2, pcall(error, 'x')) == 'x'", True),
        ("return table.concat({'a', 'b'}, '-') == 'a-b' and math.floor(1.5) == 1", True),
    ],
)
def test_a_filter_passes_what_it_returns_true_for(host: ScriptHost, source: str, passes: bool) -> None:
    assert host.lua_filter(source)(json.dumps(DATA).encode()) is passes


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("event.b = 2 return event.o", {"k": 1.5}),
        ("return {n = event.a + 1, big = event.big, text = event.text}", {"n": 2, "big": 2**53, "text": "ü"}),
        ("return {1, 2, {3}}", [1, 2, [3]]),
        ("return {1, nil, 3}", [1, None, 3]),
        ("return {}", {}),
        ("return {[2] = 'x', a = 'y'}", {"2": "x", "a": "y"}),
        ("return {[1e9] = 1}", {"1000000000": 1}),
        ("local t = {} for i = 1, 3 do t['k' .. i] = i end return t", {"k1": 1, "k2": 2, "k3": 3}),
    ],
)
def test_a_transform_returns_a_table(host: ScriptHost, source: str, result: object) -> None:
    assert _lua(host, source) == result


def test_the_same_event_gives_the_same_bytes(host: ScriptHost) -> None:
    source = "local t = {} for i = 1, 100 do t['k' .. i] = i end return t"
    assert len({host.lua_transform(source)(b"{}") for _ in range(5)}) == 1


def test_no_event_sees_what_another_left_behind(host: ScriptHost) -> None:
    source = "seen = (seen or 0) + 1 string.upper = nil return {seen}"
    assert [_lua(host, source) for _ in range(2)] == [[1], [1]]


@pytest.mark.parametrize(
    "name",
    ["os", "io", "require", "load", "loadstring", "loadfile", "dofile", "package", "module", "debug", "collectgarbage",
     "string.dump", "coroutine", "python", "setfenv", "getfenv", "newproxy", "print", "xpcall", "gcinfo",
     "math.random", "math.randomseed", "(''):rep(1).dump", "getmetatable('').__index.dump", "_G.os",
     "rawget(_G, 'debug')"],
)  # fmt: skip
def test_a_script_cannot_reach_outside(host: ScriptHost, name: str) -> None:
    assert host.lua_filter(f"return ({name}) == nil")(b"{}") is True


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("while true do end", "more than 5000000 instructions"),
        ("while true do pcall(function() while true do end end) end", "more than 5000000 instructions"),
        ("local function f() return pcall(f) end while true do f() end", "more than 5000000 instructions"),
        ("for i = 1, 1e9 do setmetatable({}, {__index = function() end}) end", "more than 5000000 instructions"),
        ("table.sort({1, 2, 3}, function() while true do end end)", "more than 5000000 instructions"),
        ("return string.rep('x', 1e9)", "the text would be too long"),
        ("local t = {} for i = 1, 100 do t[i] = ('x' .. i):rep(5e5) end return t", "more than 32 MiB of memory"),
        ("local s = 'x' while true do s = s .. s end", "more than 32 MiB of memory"),
        ("local t = {} while true do t[#t + 1] = {} end", "more than 32 MiB of memory"),
        ("return ('a'):rep(1e5):find(('.-'):rep(20) .. 'b')", "more than 2 s of processor time"),
        ("local t = {} for i = 1, 1e6 do table.insert(t, 1, i) end", "more than 2 s of processor time"),
        ("local function f() return f() + 1 end f()", "stack overflow"),
        ("error('boom')", "boom in line 1"),
        ("error({})", ""),
        ("return nothing.x", "attempt to index global 'nothing' (a nil value) in line 1"),
        ("\x1bLua", "must be text"),
    ],
)
def test_a_hostile_or_failing_filter_is_stopped(patient_host: ScriptHost, source: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        patient_host.lua_filter(source)(b"{}")
    assert message in str(caught.value)
    assert patient_host.lua_filter("return event.a == 1")(b'{"a":1}'), "and the next event finds a worker"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("return 5", "must return a table"),
        ("return nil", "must return a table"),
        ("local t = {} t.t = t return t", "nested more than 64 deep"),
        ("return {f = function() end}", "returned a function"),
        ("return {0 / 0}", "returned nan"),
        ("return {'\\255'}", "not UTF-8"),
        ("return {[true] = 1}", "neither texts nor numbers"),
        ("local t = {} for i = 1, 9 do t[i] = ('x' .. i):rep(1e6) end return t", "larger than 8 MiB"),
    ],
)
def test_a_transform_that_returns_no_json_is_refused(patient_host: ScriptHost, source: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        _lua(patient_host, source)


# --- jq -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "result"),
    [
        (".", DATA),
        ("{b: .a, c: [.list[] | numbers]}", {"b": 1, "c": [1]}),
        ("{a}, {b: 1}", {"a": 1}),
        ("def twice: . * 2; {a: (.a | twice)}", {"a": 2}),
        ("repeat({a: 1})", {"a": 1}),
        ("{env: $ENV, input: env}", {"env": {}, "input": {}}),
        ("{a: (1 | debug), b: (2 | debug(3))}", {"a": 1, "b": 2}),
        ('{a: "\\(.a)!"}', {"a": "1!"}),
    ],
)
def test_the_first_output_of_a_program_is_the_new_data(host: ScriptHost, source: str, result: object) -> None:
    assert _jq(host, source) == result


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f: f; f", "more than 0.3 s of processor time"),
        ("[range(1e12)]", ""),
        ("[limit(1e9; repeat(1))]", ""),
        ("reduce range(1e9) as $i (0; . + $i)", "more than 0.3 s of processor time"),
        ("{x: last(range(1e12))}", "more than 0.3 s of processor time"),
        ("[.] | until(false; . + .)", ""),
        ('"x" * 1000000000', "too much memory"),
        ("[][1000000000] = 1", ""),
        (".a", "must make an object"),
        ("[.]", "must make an object"),
        ("empty", "has no output"),
        ('error("boom")', "boom"),
        ("input", "`input` is not possible here"),
        ("now", "`now` is not possible here"),
        ("0 | localtime", "`localtime` is not possible here"),
        ('"x" | modulemeta', "`modulemeta` is not possible here"),
        ("halt", "`halt` is not possible here"),
        ("{a: input_filename}", "`input_filename` is not possible here"),
        ('import "/etc/passwd" as $x; $x', "unexpected import"),
        ('include "x"; .', "unexpected include"),
    ],
)  # fmt: skip
def test_a_hostile_or_failing_program_is_stopped(host: ScriptHost, source: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        _jq(host, source)
    assert message in str(caught.value)
    assert _jq(host, "{a}") == {"a": 1}, "and the next event finds a worker"


def test_a_program_that_is_too_much_to_compile_is_refused(host: ScriptHost) -> None:
    assert check_script("jq", "[" * 16_000) is not None
    assert check_script("lua", "return " + "(" * 16_000) is not None
    assert check_script("jq", "x" * 16_385) is not None


# --- the worker -----------------------------------------------------------------------------------------------------


def _pids(host: ScriptHost) -> list[int]:
    return [worker._process.pid for worker in host._workers]


def test_a_worker_starts_with_the_first_event_and_ends_with_its_host() -> None:
    host = ScriptHost()
    passes = host.lua_filter("return true")
    assert _pids(host) == []
    assert passes(b"{}")
    [pid] = _pids(host)
    del host, passes
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_that_was_killed_by_somebody_else_is_replaced(host: ScriptHost) -> None:
    assert host.lua_filter("return true")(b"{}")
    os.kill(_pids(host)[0], signal.SIGKILL)
    with pytest.raises(ScriptError, match="or crashed"):
        host.lua_filter("return true")(b"{}")
    assert host.lua_filter("return true")(b"{}")


def test_a_worker_sees_nothing_of_our_environment(host: ScriptHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "canary")
    assert _jq(ScriptHost(), "{e: $ENV, f: env}") == {"e": {}, "f": {}}
