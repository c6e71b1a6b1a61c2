"""What passes a filter and what does not, and that it is always said why. argo-events' faults have a test each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.events import Event
from sensors.filters.candidate import Candidate, Rejection
from tests.filters.builders import NOON, gate, rejection
from tests.filters.test_paths import JSON, THOROUGH


def _data(path: str = "v", type: str = "number", value: Any = ("1",), **more: Any) -> dict[str, Any]:
    return {"data": [{"path": path, "type": type, "value": list(value), **more}]}


def _expr(text: str, *names: str) -> dict[str, Any]:
    return {"expr": text, "fields": [{"name": name, "path": name} for name in names]}


def _text(answer: Rejection | None) -> str:
    assert answer is not None
    return answer.text


# --- the faults of argo-events --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "passes"), [("a", False), ("b", False), ("c", True)])
def test_argo_3215_and_3808_not_equal_to_several_values_means_none_of_them(value: str, passes: bool) -> None:
    filters = _data(type="string", comparator="!=", value=("^a$", "^b$"))
    assert (rejection(filters, {"v": value}) is None) is passes


@pytest.mark.parametrize(("value", "passes"), [(1, False), (2.0, False), (3, True)])
def test_argo_3215_holds_for_numbers_too(value: float, passes: bool) -> None:
    assert (rejection(_data(comparator="!=", value=("1", "2")), {"v": value}) is None) is passes


def test_with_or_an_error_in_one_kind_of_filter_does_not_hide_the_success_of_another() -> None:
    filters = {"exprs": [_expr("missing == 1", "missing")], **_data(), "context": {"type": "nobody's"}}
    assert rejection(filters, {"v": 1}, operator="or") is None
    assert _text(rejection(filters, {"v": 2}, operator="or")) == (
        '`missing` is not in the data; `v` is 2, not = 1; the attribute `type` is "dev.eventbus.event", not "nobody\'s"'
    )


def test_with_or_a_script_that_fails_does_not_hide_the_success_of_another() -> None:
    assert rejection({**_data(), "script": "error(1)"}, {"v": 1}, operator="or") is None
    answer = rejection({**_data(), "script": "error(1)"}, {"v": 1})
    assert answer == Rejection("script", "error(1)")


def test_with_or_an_error_in_one_filter_does_not_hide_the_success_of_the_next_of_its_kind() -> None:
    exprs = [_expr("missing == 1", "missing"), _expr("v > 'text'", "v"), _expr("v == 1", "v")]
    assert rejection({"exprs": exprs, "exprLogicalOperator": "or"}, {"v": 1}) is None
    data = _data("missing")["data"] + _data("v")["data"]
    assert rejection({"data": data, "dataLogicalOperator": "or"}, {"v": 1}) is None


def test_a_missing_path_is_no_match_with_a_reason() -> None:
    assert rejection(_data("a.b"), {"a": {}}) == Rejection("data", "`a.b` is not in the data")
    assert rejection({"exprs": [_expr("x == 1", "x")]}, {}) == Rejection("expr", "`x` is not in the data")


@pytest.mark.parametrize(
    ("name", "value"),
    [("id", "1"), ("source", "shop"), ("specversion", "1.0"), ("type", "t"), ("datacontenttype", "application/json"),
     ("subject", "order"), ("time", "2026-01-01T00:00:00Z"), ("region", "eu"), ("count", "7"), ("hot", "true"),
     ("count", 7), ("hot", True)],
)  # fmt: skip
def test_a_context_filter_covers_every_attribute_and_extension(name: str, value: Any) -> None:
    extensions: dict[str, Any] = {"time": "2026-01-01T00:00:00Z", "region": "eu", "count": 7, "hot": True}
    event = Event.new("shop", "order", {}, type="t", id="1", **extensions)
    assert rejection({"context": {name: value}}, event) is None
    assert rejection({"context": {name: "another"}}, event) is not None


def test_an_attribute_that_the_event_does_not_have_is_named() -> None:
    assert rejection({"context": {"region": "eu"}}, {}) == Rejection("context", "the event has no attribute `region`")


def test_what_a_cluster_writes_for_attributes_that_nobody_gave_is_ignored() -> None:
    exported = {"id": "", "source": "shop", "specversion": "", "type": "", "subject": "", "time": None}
    assert rejection({"context": exported}, {}) is None


# --- data -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comparator", "passing", "failing"),
    [
        ("=", [10, 10.0, "10", "1e1"], [9, "11"]),
        ("!=", [9, "11"], [10, "10.0"]),
        (">", [10.5, 11, "11"], [10, 9]),
        (">=", [10, 11], [9.99]),
        ("<", [9, -1e300], [10]),
        ("<=", [10, 9], [10.01]),
        ("", [10], [9]),
    ],
)
def test_numbers_are_compared(comparator: str, passing: list[Any], failing: list[Any]) -> None:
    filters = _data(value=["10"], comparator=comparator)
    assert [value for value in passing if rejection(filters, {"v": value}) is not None] == []
    assert [value for value in failing if rejection(filters, {"v": value}) is None] == []


def test_one_of_several_values_is_enough() -> None:
    assert rejection(_data(value=["1", "2"]), {"v": 2}) is None
    assert rejection(_data(value=["10", "2"], comparator=">"), {"v": 3}) is None
    assert rejection(_data(type="string", value=["x", "y$"]), {"v": "say"}) is None


@pytest.mark.parametrize("value", ["word", True, None, {}, []])
@pytest.mark.parametrize("comparator", ["=", "!=", "<"])
def test_what_is_no_number_is_never_taken_for_0(value: Any, comparator: str) -> None:
    assert _text(rejection(_data(value=["0"], comparator=comparator), {"v": value})).endswith("which is no number")


@pytest.mark.parametrize(
    ("pattern", "text", "passes"),
    [
        ("hello", "say hello!", True),
        ("^hello$", "say hello!", False),
        ("a.c", "abc", True),
        ("a.c", "a\nc", False),
        ("(?i)HELLO", "hello", True),
        (r"^\d+$", "123", True),
        ("", "anything", True),
        ("ü", "über", True),
        ("1.5", 1.5, True),
        ("^50$", 50.0, True),
        ("^true$", True, True),
        ("^$", None, True),
        ('"a":1', {"a": 1}, True),
    ],
)
def test_a_string_is_searched_for_a_regular_expression(pattern: str, text: Any, passes: bool) -> None:
    assert (rejection(_data(type="string", value=[pattern]), {"v": text}) is None) is passes
    assert (rejection(_data(type="string", value=[pattern], comparator="!="), {"v": text}) is None) is not passes


@pytest.mark.parametrize(
    ("value", "truth"), [(True, True), (False, False), ("true", True), ("0", False), ("yes", None), (1, None)]
)
def test_truth_is_compared(value: Any, truth: bool | None) -> None:
    assert (rejection(_data(type="bool", value=["true"]), {"v": value}) is None) is (truth is True)
    assert (rejection(_data(type="bool", value=["true"], comparator="!="), {"v": value}) is None) is (truth is False)


@pytest.mark.parametrize(
    ("template", "value", "passes"),
    [
        ("{{ .Input | upper }}", "a-17", True),
        ("{{ .Input | lower }}", "A-17", False),
        ('{{ .Input | trimPrefix "x" | upper }}', "xa-17", True),
        ("{{ .Input }}", {"A-17": 1}, True),
    ],
)
def test_a_template_changes_what_is_compared(template: str, value: Any, passes: bool) -> None:
    filters = _data(type="string", value=("A-17",), template=template)
    assert (rejection(filters, {"v": value}) is None) is passes


def test_a_template_gives_numbers_too_and_its_failure_is_no_match() -> None:
    template = '{{ index (split "-" .Input) "_1" }}'
    assert rejection(_data(comparator=">", value=("16",), template=template), {"v": "A-17"}) is None
    assert "no number" in _text(rejection(_data(template=template), {"v": "A"}))
    assert "the template for `v`" in _text(rejection(_data(template='{{ fail "no" }}'), {"v": "A"}))


def test_reasons_are_short_whatever_the_data_is() -> None:
    for value in ("x" * 10**6, ["x"] * 10**5, {"x": "y" * 10**6}, 10**4000):
        assert len(_text(rejection(_data(value=["1"]), {"v": value}))) < 100


# --- events without readable data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [_data(), {"exprs": [_expr("v == 1", "v")]}, {"script": "return true"}])
@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Event.new("shop", "order", id="1"), "the event has no data"),
        (Event.new("shop", "order", b"v: 1", id="1", datacontenttype="text/yaml"), "the data is text/yaml, not JSON"),
        (Event.new("shop", "order", b"{", id="1"), "the data of event `1` is not JSON"),
        (Event.new("shop", "order", b"[" * 100_000, id="1"), "the data of event `1` is not JSON"),
    ],
)
def test_an_event_without_readable_data_does_not_pass(filters: dict[str, Any], event: Event, reason: str) -> None:
    assert reason in _text(rejection(filters, event))


def test_an_event_without_data_can_pass_by_its_context_and_time() -> None:
    event = Event.new("shop", "order", id="1")
    filters = {"context": {"source": "shop"}, "time": {"start": "11:00:00", "stop": "13:00:00"}}
    assert rejection(filters, event) is None


def test_data_is_parsed_once_for_all_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Event] = []
    original = Event.json

    def noted(event: Event) -> Any:
        parsed.append(event)
        return original(event)

    monkeypatch.setattr(Event, "json", noted)
    candidate = Candidate(Event.new("shop", "order", {"v": 1}), 0)
    for _ in range(3):
        gate({**_data(), "exprs": [_expr("v == 1", "v")]}).admit(candidate)
    assert len(parsed) == 1


# --- expressions ----------------------------------------------------------------------------------------------------


def test_an_expression_must_be_true_and_nothing_else() -> None:
    assert rejection({"exprs": [_expr("a == 'b' || c == 10", "a", "c")]}, {"a": "x", "c": 10}) is None
    assert _text(rejection({"exprs": [_expr("a + 1", "a")]}, {"a": 1})) == "`a + 1` is 2 with a = 1"
    assert _text(rejection({"exprs": [_expr("a > 1", "a")]}, {"a": "x"})) == (
        '`a > 1`: `>` compares two numbers or two texts, not "x" and 1'
    )


def test_all_expressions_must_be_true_unless_one_is_enough() -> None:
    exprs = [_expr("a == 1", "a"), _expr("b == 1", "b")]
    assert rejection({"exprs": exprs}, {"a": 1, "b": 1}) is None
    assert rejection({"exprs": exprs}, {"a": 1, "b": 2}) is not None
    assert rejection({"exprs": exprs, "exprLogicalOperator": "or"}, {"a": 1, "b": 2}) is None


# --- time -----------------------------------------------------------------------------------------------------------


def _at(hour: int, minute: int = 0, *, month: int = 1, second: int = 0) -> int:
    return int(datetime(2026, month, 15, hour, minute, second, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("start", "stop", "passing", "failing"),
    [
        ("09:00:00", "17:00:00", [_at(9), _at(12), _at(16, 59, second=59)], [_at(8, 59, second=59), _at(17), _at(0)]),
        ("22:00:00", "06:00:00", [_at(22), _at(0), _at(5, 59)], [_at(6), _at(12), _at(21, 59)]),
        ("12:00:00", "12:00:00", [_at(12), _at(0), _at(11)], []),
    ],
)
def test_the_start_is_included_the_stop_is_not_and_midnight_is_no_border(
    start: str, stop: str, passing: list[int], failing: list[int]
) -> None:
    filters = {"time": {"start": start, "stop": stop}}
    assert [at for at in passing if rejection(filters, {}, at=at) is not None] == []
    assert [at for at in failing if rejection(filters, {}, at=at) is None] == []


def test_a_time_zone_has_summer_and_winter() -> None:
    filters = {"time": {"start": "09:00:00", "stop": "17:00:00", "timezone": "America/New_York"}}
    assert rejection(filters, {}, at=_at(13, month=7)) is None  # 9:00 in summer
    assert _text(rejection(filters, {}, at=_at(13, month=1))) == (
        "appended at 08:00:00 America/New_York, not from 09:00:00 to 17:00:00"
    )


@pytest.mark.parametrize("at", [-1, -(2**62), 2**62, 0])
def test_any_timestamp_can_be_filtered(at: int) -> None:
    rejection({"time": {"start": "09:00:00", "stop": "17:00:00"}}, {}, at=at)


# --- all together ---------------------------------------------------------------------------------------------------


def test_all_kinds_must_pass_in_argos_order_unless_one_is_enough() -> None:
    filters = {
        "exprs": [_expr("a == 1", "a")],
        **_data("b"),
        "context": {"subject": "order"},
        "time": {"start": "12:00:00", "stop": "13:00:00"},
    }
    assert rejection(filters, {"a": 1, "b": 1}) is None
    for data, at, reason in (
        ({"a": 2, "b": 2}, 0, "expr"),
        ({"a": 1, "b": 2}, 0, "data"),
        ({"a": 1, "b": 1}, 0, "time"),
    ):
        answer = rejection(filters, data, at=at)
        assert answer is not None
        assert answer.reason == reason
    del filters["context"]
    assert rejection(filters, {"a": 2, "b": 2}, operator="or") is None
    assert rejection(filters, {"a": 2, "b": 2}, operator="or", at=0) is not None
    assert gate(filters).reasons == ("expr", "data", "time")


_PATHS = st.sampled_from(
    ["a", "a.b", "a.#", "a.#.b", "a.0", "*", 'a.#(b=="x")#', "$..a", "$.a[*]", "a.@tostr", "@this"]
)
_NAMES = st.sampled_from(["bool", "number", "string"])
_EXPRS = st.sampled_from(["v == 1", "v > 1", "v + 'x' == 'x'", "v in (1, 'a')", "v =~ 'a'", "v ? true : false", "!v"])


@st.composite
def _filters(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(_NAMES)
    fitting = {"bool": ["true", "0"], "number": ["1", "0", "1e9"], "string": ["", "^a", "x", "(a|b)+$"]}[kind]
    comparators = ["=", "!="] if kind != "number" else ["=", "!=", ">", ">=", "<", "<="]
    data = {
        "path": draw(_PATHS),
        "type": kind,
        "value": draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=3)),
        "comparator": draw(st.sampled_from(comparators)),
    }
    expr = {"expr": draw(_EXPRS), "fields": [{"name": "v", "path": draw(_PATHS)}]}
    return {
        "data": [data],
        "exprs": [expr],
        "context": {"region": "eu"} if draw(st.booleans()) else {},
        "time": {"start": "09:00:00", "stop": "17:00:00"} if draw(st.booleans()) else None,
    }


@THOROUGH
@given(_filters(), st.sampled_from(["and", "or"]), JSON | st.dictionaries(st.just("a"), JSON), st.integers(0, 2**41))
def test_filters_never_raise_and_always_say_why(filters: dict[str, Any], operator: str, data: Any, at: int) -> None:
    answer = rejection(filters, data, operator=operator, at=at)
    assert answer is None or (answer.reason in {"data", "expr", "context", "time"} and answer.text)


@THOROUGH
@given(st.binary(max_size=30))
def test_filters_never_raise_whatever_the_bytes_are(data: bytes) -> None:
    rejection(_data("a"), Event.new("shop", "order", data, id="1"))


@THOROUGH
@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["=", "!=", ">", ">=", "<", "<="]))
def test_equal_and_not_equal_and_the_rest_share_out_all_numbers(number: float, comparator: str) -> None:
    opposite = {"=": "!=", "!=": "=", ">": "<=", "<=": ">", "<": ">=", ">=": "<"}[comparator]
    passes = rejection(_data(value=["0.5"], comparator=comparator), {"v": number}) is None
    assert passes is not (rejection(_data(value=["0.5"], comparator=opposite), {"v": number}) is None)


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    filters = _data(type="string", value=["^(a+)+$", "(a|aa)+$", "(.*)*x"])
    assert rejection(filters, {"v": "a" * 300_000 + "b"}, at=NOON) is not None
