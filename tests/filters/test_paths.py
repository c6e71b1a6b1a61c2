"""Paths: gjson's language as its own documentation shows it, JSONPath, and what nobody may do with either."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sensors.paths import MAX_VISITS, MISSING, compile_path

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
THOROUGH = settings(UNHURRIED, max_examples=500)
DATA: dict[str, Any] = {
    "name": {"first": "Tom", "last": "Anderson"},
    "age": 37,
    "children": ["Sara", "Alex", "Jack"],
    "fav.movie": "Deer Hunter",
    "friends": [
        {"first": "Dale", "last": "Murphy", "age": 44, "nets": ["ig", "fb", "tw"], "vip": True},
        {"first": "Roger", "last": "Craig", "age": 68, "nets": ["fb", "tw"], "vip": False},
        {"first": "Jane", "last": "Murphy", "age": 47, "nets": ["ig", "tw"]},
    ],
    "#": "hash",
    "@type": "Person",
    "mixed": [1, "1", True, None, {"a": 1}, [2, [3]]],
    "text": '{"inner":[1,2]}',
    "__class__": "a key like any other",
}
FRIENDS = DATA["friends"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name.last", "Anderson"),
        ("children.1", "Alex"),
        ("children.01", "Alex"),
        ("friends.1.first", "Roger"),
        ("child*.2", "Jack"),
        ("c?ildren.0", "Sara"),
        (r"fav\.movie", "Deer Hunter"),
        (r"fav\.m*", "Deer Hunter"),
        ("friends.#", 3),
        ("friends.#.age", [44, 68, 47]),
        ("friends.#.vip", [True, False]),
        ("friends.#.nets.#", [3, 2, 2]),
        ("#", "hash"),
        ('friends.#(last=="Murphy").first', "Dale"),
        ('friends.#(last=="Murphy")#.first', ["Dale", "Jane"]),
        ('friends.#(last="Murphy")#.first', ["Dale", "Jane"]),
        ('friends.#(last!="Murphy").first', "Roger"),
        ("friends.#(age>45)#.last", ["Craig", "Murphy"]),
        ("friends.#(age>=47)#.first", ["Roger", "Jane"]),
        ("friends.#(age<45)#.first", ["Dale"]),
        ("friends.#(age<=44)#.first", ["Dale"]),
        ("friends.#(vip==true).first", "Dale"),
        ("friends.#(vip!=true).first", "Roger"),
        ("friends.#(vip).first", "Dale"),
        ("friends.#(vip)#.first", ["Dale", "Roger"]),
        ('friends.#(first%"D*").last', "Murphy"),
        ('friends.#(first!%"D*").last', "Craig"),
        ('children.#(!%"*a*")', "Alex"),
        ('children.#(%"*a*")#', ["Sara", "Jack"]),
        ('friends.#(nets.#(=="fb"))#.first', ["Dale", "Roger"]),
        ('friends.#(last=="a.b|c)")#', []),
        ('friends.#(age>"x")#', []),
        ('friends.#(age!="x")#.age', [44, 68, 47]),
        ("friends|0.first", "Dale"),
        ("friends|#", 3),
        ('friends.#(last="Murphy")#|0', FRIENDS[0]),
        ('friends.#(last="Murphy")#.0', []),
        ('friends.#(last="Murphy")#|#', 2),
        ('friends.#(last="Murphy")#.#', []),
        ("children.@reverse", ["Jack", "Alex", "Sara"]),
        ("children.@reverse.0", "Jack"),
        ("name.@reverse.@keys", ["last", "first"]),
        ("name.@values", ["Tom", "Anderson"]),
        ("friends.#.nets.@flatten", ["ig", "fb", "tw", "fb", "tw", "ig", "tw"]),
        ("@this.age", 37),
        ("children.@tostr", '["Sara","Alex","Jack"]'),
        ("text.@fromstr.inner.1", 2),
        ("@type", "Person"),
        ("__class__", "a key like any other"),
        ("$.name.first", "Tom"),
        ("$.friends[*].age", [44, 68, 47]),
        ("$.friends[-1].first", "Jane"),
        ("$.friends[0:2].first", ["Dale", "Roger"]),
        ("$.friends[0,2].first", ["Dale", "Jane"]),
        ("$..first", ["Tom", "Dale", "Roger", "Jane"]),
        ("$['fav.movie']", "Deer Hunter"),
        ("$.name.*", ["Tom", "Anderson"]),
    ],
)
def test_a_path_finds_what_gjson_or_jsonpath_finds(path: str, value: object) -> None:
    assert compile_path(path)(DATA) == value


@pytest.mark.parametrize(
    "path",
    [
        "nme",
        "children.3",
        "children.-1",
        "children.x",
        "name.first.x",
        "name.#.x",
        "age.#",
        "x*",
        "age.*",
        'friends.#(last=="Nobody")',
        'friends.#(last="Murphy")#|first',
        "age.#(x==1)",
        "age.@fromstr",
        "name.first.@fromstr",
        "age.__class__",
        "children.__len__",
        "$.age.__class__",
        "$.children.append",
        "$.x",
        "$.friends[9]",
        "$.age[0]",
    ],
)
def test_a_path_that_leads_nowhere_finds_nothing(path: str) -> None:
    assert compile_path(path)(DATA) is MISSING


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "empty step"),
        ("a..b", "empty step"),
        ("a|", "empty step"),
        ("a\\", "lone"),
        ("{a,b}", "uses gjson's `{`"),
        ("a.[b]", r"uses gjson's `\["),
        ("!true", "uses gjson's `!`"),
        ("a.@pretty", "uses gjson's `@pretty`"),
        ("a.@flatten:x", "an argument"),
        ("a.#(b", "never closed"),
        ("a.#()", "empty query"),
        ('a.#(b=="c)', "never closed"),
        ("a.#(b)c", "must have `.` or `|` after the query"),
        ("a.#(b==~true)", "uses gjson's `~`"),
        ("#(" * 9 + "a" + ")" * 9, "nested more than 8 deep"),
        (".".join("x" * 51), "more than 50 steps"),
        ("x" * 1025, "longer than 1,024"),
        ("$.a[", "is not a JSONPath"),
        ("$.a[?(@.b)]", "is not a JSONPath"),
        ("$..a..b", "only once"),
        ("$.a.`parent`", "`parent`, which is not supported"),
        ("$.a where b", "`where`, which is not supported"),
        ("$" + ".a" * 51, "more than 50 steps"),
    ],
)
def test_a_bad_path_is_refused_with_the_reason(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_path(path)


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_a_wildcard_costs_no_more_than_reading_the_key() -> None:
    key = "a" * 100_000
    assert compile_path("*a" * 50 + "*b")({key: 1}) is MISSING
    assert compile_path("*a" * 50 + "*")({key: 1}) == 1


def test_what_tostr_makes_does_not_double_for_ever() -> None:
    assert compile_path("|".join(["@tostr"] * 40))({"a": '"'}) is MISSING


def test_a_jsonpath_gives_up_where_there_is_too_much_to_look_at() -> None:
    assert compile_path("$..*")({"a": [0] * 1000}) is not MISSING
    assert compile_path("$..*")({"a": [0] * MAX_VISITS}) is MISSING


def test_data_nested_deeply_is_no_reason_to_fail() -> None:
    data: Any = 1
    for _ in range(5000):
        data = [data]
    assert compile_path("@tostr")(data) is MISSING
    assert isinstance(compile_path("$..*")(data), list)
    assert compile_path("#.#.#")(data) == [[1]]


# --- properties -----------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
_FRAGMENTS = ("a", "0", "#", "*", "?", ".", "|", "\\", "@this", "@reverse", "@tostr", "@fromstr", "@keys", "(", ")",
              "#(", "==", "!=", ">", "%", '"', "1", "true", "$", "$.", "..", "[", "]", "{", "!", "~", ":",
              "`parent`", " ")  # fmt: skip
PATHS = st.text(max_size=12) | st.lists(st.sampled_from(_FRAGMENTS), max_size=10).map("".join)


@THOROUGH
@given(PATHS, JSON)
def test_a_path_is_refused_or_finds_something_or_nothing_whatever_the_data(path: str, data: object) -> None:
    try:
        find = compile_path(path)
    except ValueError:
        return
    find(data)


@UNHURRIED
@given(JSON)
def test_every_value_has_a_path(data: object) -> None:
    for path, value in _leaves({"root": data}, ""):
        assert compile_path(path)({"root": data}) == value


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    named = [(f"{path}.{_escaped(str(key))}".lstrip("."), inner) for key, inner in items if key != ""]
    return [*named, *(leaf for name, inner in named for leaf in _leaves(inner, name))]


def _escaped(key: str) -> str:
    return key if key.isdigit() and key.isascii() else "".join(f"\\{character}" for character in key)


@UNHURRIED
@given(st.lists(st.integers(0, 9)), st.integers(0, 9))
def test_a_query_finds_what_a_comprehension_finds(numbers: list[int], limit: int) -> None:
    data = {"n": [{"v": number} for number in numbers]}
    assert compile_path(f"n.#(v>={limit})#.v")(data) == [number for number in numbers if number >= limit]
    first = next((number for number in numbers if number != limit), MISSING)
    assert compile_path(f"n.#(v!={limit}).v")(data) == first
