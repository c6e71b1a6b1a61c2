"""Whatever the template and the event: a rendering ends soon, is small, and fails with one kind of error."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sensors.templates import TemplateError, TemplateSyntaxError, compile_template
from sensors.templates.budget import MAX_TEXT
from sensors.templates.functions import GROUPS

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
SECONDS = 5.0
"""Of processor time: the machine may be busy with something else."""

BOMBS = {
    "nested ranges": "{{ range until 1000 }}{{ range until 1000 }}{{ range until 1000 }}x{{ end }}{{ end }}{{ end }}",
    "empty ranges": "{{ range 1000000000 }}{{ end }}",
    "repeat": '{{ repeat 1000000000 "a" }}',
    "repeat of repeat": '{{ repeat 10000 (repeat 10000 "aaaaaaaaaa") }}',
    "repeat in a loop": '{{ range 1000000 }}{{ $x := repeat 1000000 "a" }}{{ end }}',
    "doubling text": '{{ $x := "ab" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}{{ $x }}',
    "doubling list": "{{ $x := list 1 }}{{ range 100 }}{{ $x = list $x $x }}{{ end }}{{ $x }}",
    "wide doubling list": "{{ $x := list 1 }}{{ range 60 }}{{ $x = concat $x $x }}{{ end }}{{ len $x }}",
    "doubling list as json": "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x }}",
    "doubling list compared": "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ deepEqual $x $x }}",
    "doubling list copied": "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ deepCopy $x }}",
    "an object in itself": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ $d }}',
    "an object in itself as json": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ toPrettyJson $d }}',
    "an object in itself, merged": '{{ $d := dict "a" 1 }}{{ $_ := set $d "d" $d }}{{ merge $d (deepCopy $d) }}',
    "an object in itself, formatted": '{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ printf "%s" $d }}',
    "width": '{{ printf "%1000000000d" 1 }}',
    "width by argument": '{{ printf "%*d" 1000000000 1 }}',
    "precision": '{{ printf "%.1000000000f" 1.0 }}',
    "many widths": '{{ printf "%900000d%900000d" 1 1 }}',
    "indent": '{{ indent 1000000000 "a" }}',
    "indent of lines": '{{ indent 1000 (repeat 10000 "\\n") }}',
    "until": "{{ until 1e9 }}",
    "untilStep": "{{ untilStep 0 9223372036854775807 1 }}",
    "seq": "{{ seq 1 1000000000 }}",
    "replace nothing": '{{ replace "" (repeat 10000 "a") (repeat 10000 "b") }}',
    "join": '{{ join (repeat 10000 "a") (until 10000) }}',
    "wrapWith": '{{ wrapWith 1 (repeat 10000 "a") (repeat 10000 "b") }}',
    "regex replacement": '{{ regexReplaceAll "a" (repeat 10000 "a") (repeat 10000 "b") }}',
    "regex references": '{{ regexReplaceAll "(a+)" (repeat 5000 "a") (repeat 5000 "$1") }}',
    "big regex": '{{ regexMatch "((a{100}){100}){100}" "a" }}',
    "quote": '{{ $x := repeat 1000000 "\\x00" }}{{ quote $x $x $x }}',
    "html": '{{ html (repeat 1000000 "<") }}',
    "deep json": '{{ fromJson (print (repeat 10000 "[") (repeat 10000 "]")) | toJson | fail }}',
}  # fmt: skip


@pytest.mark.parametrize("template", BOMBS.values(), ids=BOMBS)
def test_a_bomb_fizzles_out(template: str) -> None:
    started = time.thread_time()
    with pytest.raises((TemplateError, TemplateSyntaxError)):
        compile_template(template).render({"Input": {}})
    assert time.thread_time() - started < SECONDS


def test_output_of_the_largest_size_is_possible_and_not_one_character_more() -> None:
    assert len(compile_template(f'{{{{ repeat {MAX_TEXT} "a" }}}}').render({})) == MAX_TEXT
    with pytest.raises(TemplateError, match="makes a text of more than"):
        compile_template(f'{{{{ repeat {MAX_TEXT} "a" }}}}b').render({})


def test_a_regular_expression_that_explodes_elsewhere_is_linear_here() -> None:
    text = "a" * 50_000 + "!"
    assert compile_template('{{ regexMatch "^(a+)+$" .Input }}').render({"Input": text}) == "false"


def test_deep_data_is_an_error_and_not_a_crash() -> None:
    data: Any = 1
    for _ in range(100_000):
        data = [data]
    with pytest.raises(TemplateError, match="nested more than 100 levels deep"):
        compile_template("{{ .Input }}").render({"Input": data})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
_NAMES = sorted(name for group in GROUPS.values() for name in group)
_ARGUMENT = st.sampled_from(
    [".Input", ".Input.a", "$", "1", "-1", "2.5", "1e18", '"a"', '"%d %v %5.2q"', '"2006-01-02"', "true", "nil",
     '"1.2.3"', "(list 1 .Input)", '(dict "a" .Input)', "`(a+)|b*`", '"Europe/Berlin"', "(toDate `2006` `2020`)"]
)  # fmt: skip


@UNHURRIED
@given(name=st.sampled_from(_NAMES), arguments=st.lists(_ARGUMENT, max_size=4), data=_JSON)
def test_a_call_gives_text_or_an_error_of_ours(name: str, arguments: list[str], data: Any) -> None:
    try:
        rendered = compile_template(f"{{{{ {name} {' '.join(arguments)} }}}}").render({"Input": data})
    except (TemplateError, TemplateSyntaxError):
        return
    assert len(rendered) <= MAX_TEXT


_PIECES = st.sampled_from(
    ["{{", "}}", "{{-", "-}}", " ", "\n", ".", ".a", "$", "$x", ":=", "=", "|", "(", ")", "if", "else", "end", "range",
     "with", "define", "break", '"', "`", "'", "1", "0x", "/*", "*/", "upper", "and", "nil", "é", "\\", "x", ",", "-"]
)  # fmt: skip


@UNHURRIED
@given(st.lists(_PIECES, max_size=30).map("".join) | st.text())
def test_any_text_is_a_template_or_has_a_mistake_inside_of_it(text: str) -> None:
    index = 0
    try:
        compile_template(text).render({"Input": {"a": 1}})
    except TemplateSyntaxError as error:
        index = error.index
    except TemplateError:
        pass
    assert 0 <= index <= len(text)


@UNHURRIED
@given(st.text())
def test_text_without_actions_is_copied(text: str) -> None:
    if "{{" not in text:
        assert compile_template(text).render({}) == text


@UNHURRIED
@given(_JSON)
def test_data_is_printed_once_and_never_evaluated(data: Any) -> None:
    hostile = {"a": "{{ fail `x` }}", "b": data}
    try:
        rendered = compile_template("{{ .Input.a }}{{ .Input.b }}").render({"Input": hostile})
    except TemplateError:
        return
    assert rendered.startswith("{{ fail `x` }}")
