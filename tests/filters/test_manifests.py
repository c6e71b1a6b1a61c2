"""Mistakes in filters are told with their place, and a filter is part of what a sensor is."""

from __future__ import annotations

from typing import Any

import pytest

from sensors.scripts import host
from sensors.spec.loader import load_text, make_manifest
from sensors.spec.problems import ManifestError

MANIFEST = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata:
  name: s
spec:
  dependencies:
    - name: d
      eventSourceName: shop
      eventName: order
{more}
  triggers:
    - template:
        name: t
        log: {{}}
"""


def _problems(more: str) -> list[str]:
    indented = "\n".join(f"      {line}" for line in more.splitlines())
    with pytest.raises(ManifestError) as caught:
        load_text(MANIFEST.format(more=indented), "s.yaml")
    return [f"{problem.line}:{problem.column} {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("filters: {data: [{path: a..b, type: string, value: [x]}]}", "10:31 `path` has an empty step in `a..b`; "),
        ("filters: {data: [{path: a, type: text, value: [x]}]}", "10:40 `type` must be `bool`, `number` or `string`, "),
        ("filters: {data: [{path: a, type: number, value: ['x']}]}", "10:56 `x` is not a number"),
        ("filters: {data: [{path: a, type: bool, value: ['x']}]}", "10:54 `x` is neither `true` nor `false`"),
        ("filters: {data: [{path: a, type: string, value: ['(']}]}", "10:56 `(` is not a regular expression of RE2: "),
        (
            "filters: {data: [{path: a, type: string, value: [1]}]}",
            "10:56 `value[0]` must be text, but YAML reads `1` ",
        ),
        ("filters: {data: [{path: a, type: string, value: []}]}", "10:48 `value` must have at least one entry"),
        (
            "filters: {data: [{path: a, type: bool, value: ['1'], comparator: '>'}]}",
            "10:72 a `bool` can be compared with `=` and `!=` only, not with `>`",
        ),
        (
            "filters: {data: [{path: a, type: bool, value: ['1'], template: '{{ nope .Input }}'}]}",
            "10:74 there is no function `nope`; did you mean `nospace`?",
        ),
        ("filters: {exprs: [{expr: a = 1, fields: [{name: a, path: a}]}]}", "10:34 `=` is not an operator; write `==`"),
        (
            "filters: {exprs: [{expr: amuont > 1, fields: [{name: amount, path: a}]}]}",
            "10:32 no field is named `amuont`; did you mean `amount`?",
        ),
        ("filters: {exprs: [{expr: 'true', fields: []}]}", "10:40 `fields` must have at least one entry"),
        ("filters: {time: {start: '25:00:00', stop: '1:00:00'}}", "10:31 `start` must be a time of day "),
        (
            "filters: {time: {start: '9:00:00', stop: '10:00:00', timezone: Mars/Crater}}",
            "10:70 `timezone` must be a time zone such as `Europe/Berlin`, which `Mars/Crater` is not",
        ),
        (
            "filters: {time: {start: '9:00:00', stop: '10:00:00', timezone: ../../etc/passwd}}",
            "10:70 `timezone` must be a time zone ",
        ),
        ("filters: {context: {Type: x}}", "10:17 `context` must have names of CloudEvents attributes, "),
        ("filters: {context: {type: [x]}}", "10:17 `context` must have a single value for `type`"),
        ("filters: {context: x}", "10:26 `context` must be a mapping, not text"),
        (
            "filters: {data: [], dataLogicalOperator: xor}",
            "10:48 `dataLogicalOperator` must be `and` or `or`, not `xor`",
        ),
        ("filters: {dta: []}", "10:17 unknown field `dta`; did you mean `data`?"),
        ("filtersLogicalOperator: xor", "10:31 `filtersLogicalOperator` must be `and` or `or`, not `xor`"),
        ("filters: {script: 'return ('}", "10:26 unexpected symbol near '<eof>'"),
        ("transform: {}", "10:7 a transform needs `jq` or `script`"),
        ("transform: {jq: '.', script: 'return event'}", "10:28 a transform has `jq` or `script`, not both"),
        ("transform: {jq: '{a: }'}", "10:28 syntax error, unexpected '}'"),
        ("transform: {jq: 'import \"x\" as x; .'}", "10:24 syntax error, unexpected import"),
    ],
)
def test_a_mistake_is_told_with_its_place(more: str, problem: str) -> None:
    [found] = _problems(more)
    assert found.startswith(problem)


def test_the_place_in_a_program_of_several_lines_is_found() -> None:
    assert _problems("transform:\n  jq: |\n    {a: 1}\n    | nonsense") == ["13:13 nonsense/0 is not defined"]
    assert _problems("filters:\n  script: |\n    local a = 1\n    return = 2") == ["13:11 unexpected symbol near '='"]


@pytest.mark.parametrize(("field", "package"), [("jq", "jq"), ("script", "lupa")])
def test_without_the_package_a_script_is_refused_with_what_to_install(
    field: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.check_script.cache_clear()
    monkeypatch.setattr(host, "find_spec", lambda _name: None)
    assert _problems(f"transform: {{{field}: 'x'}}") == [
        f"10:{23 if field == 'jq' else 27} this needs the package `{package}`: install `kafka-eventbus[scripts]`"
    ]
    host.check_script.cache_clear()


def _digest(**dependency: Any) -> str:
    return make_manifest(
        {
            "apiVersion": "eventbus.dev/v1alpha1",
            "kind": "Sensor",
            "metadata": {"name": "s"},
            "spec": {
                "dependencies": [{"name": "d", "eventSourceName": "shop", "eventName": "order", **dependency}],
                "triggers": [{"template": {"name": "t", "log": {}}}],
            },
        }
    ).digest()


def test_a_change_of_a_filter_changes_the_sensors_digest_and_a_default_does_not() -> None:
    def data(value: str, **more: str) -> dict[str, Any]:
        return {"data": [{"path": "a", "type": "number", "value": [value], **more}]}

    assert len({_digest(), _digest(filters=data("1")), _digest(filters=data("2"))}) == 3
    assert _digest(filters=data("1")) == _digest(filters=data("1", comparator=""), filtersLogicalOperator="and")
    assert _digest(filters={"context": {"type": "a"}}) == _digest(filters={"context": {"type": "a", "subject": ""}})
    assert _digest(transform={"jq": "."}) != _digest()
