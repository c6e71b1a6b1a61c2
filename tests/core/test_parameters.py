"""Payloads: where values are found, what becomes of their types, and where they are put."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from eventbus.events import Event
from sensors.parameters import Parameter, ParameterError, Payload, build_payload

DATA = {
    "name": "book",
    "price": 12.5,
    "count": 3,
    "gift": True,
    "note": None,
    "items": [{"id": "a", "tags": ["x", "y"]}, {"id": "b"}],
    "a.b": {"c*d": "dotted"},
    "0": "zero",
    "@type": "Product",
    "$ref": "#/x",
}
EVENT = Event.new("/shop", "order", DATA, type="sold", id="e-1", count=7, hot=True)


def _payload(*parameters: Mapping[str, Any], events: Mapping[str, Event] | None = None) -> Any:
    models = [Parameter.model_validate(parameter) for parameter in parameters]
    return json.loads(build_payload(models, {"dep": EVENT} if events is None else events))


def _value(raw: bool = True, event: Event = EVENT, **source: Any) -> Any:
    parameter = {"src": {"dependencyName": "dep", "useRawData": raw, **source}, "dest": "x"}
    return _payload(parameter, events={"dep": event})["x"]


# --- finding values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "book"),
        ("items", DATA["items"]),
        ("items.0.id", "a"),
        ("items.01.id", "b"),
        ("items.0.tags.1", "y"),
        (r"a\.b.c\*d", "dotted"),
        ("0", "zero"),
        ("@type", "Product"),
        ("$ref", "#/x"),
        ("note", None),
        ("$", DATA),
        ("$.items[1].id", "b"),
        ("$.items[*].id", ["a", "b"]),
        ("$['a.b']['c*d']", "dotted"),
        ("$..tags", ["x", "y"]),
    ],
)
def test_a_data_key_is_a_dotted_path_or_a_jsonpath(path: str, value: object) -> None:
    assert _value(dataKey=path) == value


@pytest.mark.parametrize(
    "path", ["nme", "items.2", "items.-1", "items.x", "name.first", "count.0", "note.x", "$.items[9]"]
)
def test_a_path_that_leads_nowhere_is_an_error_without_a_default(path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        _value(dataKey=path)
    assert str(caught.value) == (
        f"dependency `dep`: event `e-1` has no `{path}` in its data, and the parameter has no default"
    )
    assert _value(dataKey=path, value="default") == "default"


@pytest.mark.parametrize(("key", "value"), [("type", "sold"), ("source", "/shop"), ("count", 7), ("hot", True)])
def test_a_context_key_is_an_attribute_of_the_event(key: str, value: object) -> None:
    assert _value(contextKey=key) == value


def test_an_attribute_that_is_not_there_is_an_error_without_a_default() -> None:
    with pytest.raises(ParameterError, match="event `e-1` has no `time` in its context"):
        _value(contextKey="time")
    assert _value(contextKey="time", value="never") == "never"


def test_the_data_key_wins_over_the_context_key() -> None:
    assert _value(contextKey="type", dataKey="name") == "book"


def test_without_a_selector_the_default_is_the_value() -> None:
    assert _value(value="fixed") == "fixed"


def test_without_anything_the_value_is_the_whole_event() -> None:
    assert _value() == {"context": dict(EVENT.attributes), "data": DATA}


@pytest.mark.parametrize(
    ("data", "content_type", "shown"),
    [
        (b"plain \xc3\xa4", "text/plain", {"data": "plain ä"}),
        (b"\xff\xfe", "application/octet-stream", {"data_base64": "//4="}),
        (None, "text/plain", {}),
    ],
)
def test_a_whole_event_carries_any_kind_of_data(data: bytes | None, content_type: str, shown: dict[str, str]) -> None:
    event = Event.new("/s", "n", data, id="1", datacontenttype=content_type)
    assert _value(event=event) == {"context": dict(event.attributes), **shown}


def test_data_that_is_not_json_has_no_paths() -> None:
    text = Event.new("/s", "n", b"a", id="1", datacontenttype="text/plain")
    broken = Event.new("/s", "n", b"{", id="2", datacontenttype="application/json")
    with pytest.raises(ParameterError, match="dependency `dep`: the data of event `1` is text/plain, not JSON"):
        _value(event=text, dataKey="a")
    with pytest.raises(ParameterError, match="dependency `dep`: the data of event `2` is not JSON"):
        _value(event=broken, dataKey="a")
    assert _value(event=text, dataKey="a", value="default") == "default"
    assert _value(event=broken, dataKey="a", value="default") == "default"


def test_an_event_without_data_has_no_paths() -> None:
    with pytest.raises(ParameterError, match="has no `a` in its data"):
        _value(event=Event.new("/s", "n", id="1"), dataKey="a")


def test_a_dependency_without_an_event_is_left_out_or_has_its_default() -> None:
    absent = {"dependencyName": "other", "dataKey": "x"}
    assert _payload({"src": absent, "dest": "a"}) == {}
    assert _payload({"src": {**absent, "value": "v"}, "dest": "a"}) == {"a": "v"}


def test_data_nested_without_end_is_an_error_and_not_a_crash() -> None:
    event = Event.new("/s", "n", b"[" * 100_000 + b"]" * 100_000, id="1")
    with pytest.raises(ParameterError, match="is not JSON"):
        _value(event=event, dataKey="$..x")


UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner),
)


@UNHURRIED
@given(_JSON)
def test_every_value_of_a_document_can_be_reached_and_keeps_its_type(document: object) -> None:
    event = Event.new("/s", "n", {"root": document}, id="1")
    for path, value in _leaves(document, "root"):
        assert _value(event=event, dataKey=path) == value


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [leaf for key, inner in items for leaf in _leaves(inner, f"{path}.{_escaped(str(key))}")]
    return [(path, value), *below]


def _escaped(key: str) -> str:
    return "".join(f"\\{character}" for character in key)


# --- types ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("name", "book"),
        ("price", "12.5"),
        ("count", "3"),
        ("gift", "true"),
        ("note", "null"),
        ("items.1", '{"id":"b"}'),
        ("items.0.tags", '["x","y"]'),
    ],
)
def test_without_raw_data_every_value_becomes_text(path: str, text: str) -> None:
    assert _value(raw=False, dataKey=path) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [("1.0", "1"), ("1e3", "1000"), ("1.50", "1.5"), ("1e-7", "0.0000001"), ("1e21", "1" + "0" * 21)],
)
def test_numbers_become_text_without_exponents(number: str, text: str) -> None:
    event = Event.new("/s", "n", f'{{"n":{number}}}'.encode(), id="1")
    assert _value(raw=False, event=event, dataKey="n") == text


# --- placing values -------------------------------------------------------------------------------------------------


def _placed(*dests: str) -> Any:
    return _payload(*({"src": {"dependencyName": "dep", "value": dest}, "dest": dest} for dest in dests))


@pytest.mark.parametrize(
    ("dests", "payload"),
    [
        (["a"], {"a": "a"}),
        (["a.b.c"], {"a": {"b": {"c": "a.b.c"}}}),
        (["a.b", "a.c"], {"a": {"b": "a.b", "c": "a.c"}}),
        (["a.0", "a.1"], {"a": ["a.0", "a.1"]}),
        (["a.2"], {"a": [None, None, "a.2"]}),
        (["a.-1", "a.-1"], {"a": ["a.-1", "a.-1"]}),
        (["a.-1.x", "a.-1.x"], {"a": [{"x": "a.-1.x"}, {"x": "a.-1.x"}]}),
        (["a.1.x", "a.0.x"], {"a": [{"x": "a.0.x"}, {"x": "a.1.x"}]}),
        ([r"a\.b"], {"a.b": r"a\.b"}),
        (["a.:0"], {"a": {"0": "a.:0"}}),
        (["a.x", "a.0"], {"a": {"x": "a.x", "0": "a.0"}}),
        (["0", "-1"], ["0", "-1"]),
        (["a", "a"], {"a": "a"}),
    ],
)
def test_a_dest_makes_the_objects_and_lists_it_needs(dests: list[str], payload: object) -> None:
    assert _placed(*dests) == payload


@pytest.mark.parametrize(
    ("dests", "message"),
    [
        (["a", "a.b"], "`dest: a.b` cannot be set: there is `a` where `b` should go"),
        (["a.0", "a.b"], "`dest: a.b` cannot be set: there is a list where `b` should go"),
    ],
)
def test_a_dest_that_contradicts_another_is_an_error(dests: list[str], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        _placed(*dests)
    assert str(caught.value) == message


def test_setting_something_inside_a_copied_value_changes_no_other_copy() -> None:
    source = {"dependencyName": "dep", "dataKey": "items.1", "useRawData": True}
    payload = _payload(
        {"src": source, "dest": "one"},
        {"src": source, "dest": "two"},
        {"src": {"dependencyName": "dep", "value": "new"}, "dest": "one.id"},
    )
    assert payload == {"one": {"id": "new"}, "two": {"id": "b"}}


def test_no_parameters_make_an_empty_object() -> None:
    assert _payload() == {}


def test_without_a_dest_the_value_is_the_whole_payload() -> None:
    def whole(**source: Any) -> bytes:
        return build_payload([Parameter.model_validate({"src": {"dependencyName": "dep", **source}})], {"dep": EVENT})

    assert whole(dataKey="name") == b"book"
    assert whole(dataKey="count") == b"3"
    assert whole(dataKey="items.1", useRawData=True) == b'{"id":"b"}'
    assert json.loads(whole()) == {"context": dict(EVENT.attributes), "data": DATA}


def test_of_several_whole_payloads_the_first_whose_event_is_there_is_taken() -> None:
    parameters = [
        Parameter.model_validate({"src": {"dependencyName": name, "dataKey": "name"}}) for name in ("absent", "dep")
    ]
    assert build_payload(parameters, {"dep": EVENT}) == b"book"


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "has an empty step"),
        ("a..b", r"has an empty step in `a\.\.b`"),
        (".a", "has an empty step"),
        ("a.", "has an empty step"),
        ("a\\", r"must not end with a lone"),
        ("a.{b,c}", "uses gjson's `{`, which is not supported"),
        ("a.@pretty", "uses gjson's `@pretty`, which is not supported"),
        ("x" * 1025, "must not be longer than 1,024 characters"),
        (".".join("x" * 51), "must not have more than 50 steps"),
        ("$.a[", "is not a JSONPath"),
        ("$.a[?(@.b)]", "is not a JSONPath"),
        ("$..a..b", r"may contain `\.\.` only once"),
        ("$." + "x" * 1024, "must not be longer than 1,024 characters"),
    ],
)
def test_a_bad_data_key_is_refused(path: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Parameter.model_validate({"src": {"dependencyName": "dep", "dataKey": path}})


@pytest.mark.parametrize(
    ("dest", "message"), [("a..b", "empty step"), ("a.10000", "index beyond 9,999"), ("a\\", "lone")]
)
def test_a_bad_dest_is_refused(dest: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Parameter.model_validate({"src": {"dependencyName": "dep"}, "dest": dest})


@pytest.mark.parametrize("key", ["Type", "data-key", "", "a.b"])
def test_a_bad_context_key_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match="must be the name of a CloudEvents attribute"):
        Parameter.model_validate({"src": {"dependencyName": "dep", "contextKey": key}})


def test_a_whole_payload_beside_parts_of_one_is_refused() -> None:
    whole, part = {"src": {"dependencyName": "dep"}}, {"src": {"dependencyName": "dep"}, "dest": "x"}
    with pytest.raises(ValidationError, match="must have a `dest` in every entry or in none"):
        TypeAdapter(Payload).validate_python([whole, part])


# --- templates ------------------------------------------------------------------------------------------------------


def test_a_template_makes_text_of_the_data_or_the_context() -> None:
    assert _value(dataTemplate="{{ .Input.name | upper }} {{ .Input.count }}") == "BOOK 3"
    assert _value(contextTemplate="{{ .Input.type }}/{{ .Input.hot }}") == "sold/true"
    assert _value(dataTemplate="{{ index .Input.items 0 | toJson }}") == '{"id":"a","tags":["x","y"]}'


def test_a_template_wins_over_the_key_and_the_data_over_the_context() -> None:
    assert _value(dataTemplate="t", dataKey="name") == "t"
    assert _value(contextTemplate="t", contextKey="type") == "t"
    assert _value(contextTemplate="t", dataKey="name") == "book"
    assert _value(contextKey="type", dataTemplate="{{ .Input.name }}") == "book"


@pytest.mark.parametrize("template", ["{{ .Input.nope }}", "{{ if .Input.nope }}x{{ end }}", "{{ fail `no` }}"])
def test_a_template_that_fails_or_makes_nothing_gives_way(template: str) -> None:
    assert _value(dataTemplate=template, dataKey="name", value="v") == "book"
    assert _value(dataTemplate=template, dataKey="nope", value="v") == "v"
    assert _value(dataTemplate=template, contextKey="type", value="v") == "v"
    with pytest.raises(ParameterError, match="dependency `dep`: the template cannot be used for event `e-1`: "):
        _value(dataTemplate=template)


def test_a_template_needs_json_like_a_key() -> None:
    text = Event.new("/s", "n", b"a", id="1", datacontenttype="text/plain")
    with pytest.raises(ParameterError, match="is text/plain, not JSON"):
        _value(event=text, dataTemplate="x")
    assert _value(event=text, contextTemplate="{{ .Input.id }}") == "1"


def test_templates_in_event_data_are_text() -> None:
    hostile = '{{ env "HOME" }}'
    event = Event.new("/s", hostile, {"x": hostile}, id="1")
    assert _value(event=event, dataTemplate="{{ .Input.x }}!") == f"{hostile}!"
    assert _value(event=event, dataKey="x") == hostile
    assert _value(event=event, contextTemplate="{{ .Input.subject }}") == hostile


def test_a_mistake_in_a_template_is_one_of_the_manifest() -> None:
    with pytest.raises(ValidationError, match="there is no function `uper`; did you mean `upper`"):
        Parameter.model_validate({"src": {"dependencyName": "dep", "dataTemplate": "{{ uper .Input }}"}})


# --- operations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "result"), [("", "new"), ("overwrite", "new"), ("append", "oldnew"), ("prepend", "newold")]
)
def test_an_operation_says_what_becomes_of_a_value_that_is_there(operation: str, result: str) -> None:
    old = {"src": {"dependencyName": "dep", "value": "old"}, "dest": "a.0"}
    new = {"src": {"dependencyName": "dep", "value": "new"}, "dest": "a.0", "operation": operation}
    assert _payload(old, new) == {"a": [result]}


def test_without_a_value_there_an_operation_only_sets() -> None:
    for dest in ("a", "a.b", "a.-1"):
        source = {"dependencyName": "dep", "value": "new"}
        assert "new" in json.dumps(_payload({"src": source, "dest": dest, "operation": "append"}))


def test_a_number_that_is_appended_to_becomes_text() -> None:
    source = {"dependencyName": "dep", "dataKey": "count", "useRawData": True}
    assert _payload({"src": source, "dest": "n"}, {"src": source, "dest": "n", "operation": "append"}) == {"n": "33"}


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ValidationError, match="operation"):
        Parameter.model_validate({"src": {"dependencyName": "dep"}, "operation": "delete"})
