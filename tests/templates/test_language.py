"""Mistakes in a template are found when it is loaded, at their place; event data is never a template."""

from __future__ import annotations

import pytest

from sensors.templates import TemplateError, TemplateSyntaxError, compile_template
from sensors.templates.functions import GROUPS
from sensors.templates.functions.refused import REFUSED
from sensors.templates.parser import MAX_DEPTH, MAX_LENGTH


@pytest.mark.parametrize(
    ("template", "marked", "message"),
    [
        ("{{ uper .x }}", "uper", "there is no function `uper`; did you mean `upper`?"),
        ("a\nb {{ zzz }}", "zzz", "there is no function `zzz`; known are"),
        ('{{ env "HOME" }}', "env", "the function `env` is not allowed: it reads the environment of the sensor"),
        ("{{ now }}", "now", "the function `now` is not allowed: it asks the clock, so that a retry would differ"),
        ("{{ upper }}", "upper", "`upper` takes 1 argument, not 0"),
        ('{{ upper "a" "b" }}', "upper", "`upper` takes 1 argument, not 2"),
        ("{{ round 1 }}", "round", "`round` takes 2 to 3 arguments, not 1"),
        ("{{ eq 1 }}", "eq", "`eq` takes at least 2 arguments, not 1"),
        ('{{ repeat "3" "a" }}', '"3"', "`repeat`: argument 1 must be an int, not string; convert it with `int`"),
        ("{{ upper 3 }}", "3", "`upper`: argument 1 must be a string, not int"),
        ("{{ $x }}", "$x", "the variable `$x` is not declared"),
        ("{{ if true }}{{ $x := 1 }}{{ end }}{{ $x }}", "$x }}", "the variable `$x` is not declared"),
        ("{{ .a", "{{", "this `{{` is never closed"),
        ('{{ "a }}', '"a', "this quoted text is never closed"),
        ("{{ `a }}", "`a", "this raw text is never closed"),
        ("{{ 'ab' }}", "'ab'", "this is not one character"),
        ("{{/* a }}", "{{", "this comment is never closed"),
        ("{{ .a-b }}", "-b", '`-` is not allowed here; write `index .Input "a-b"` for such a key'),
        ("{{ (.a }}", "(", "this `(` is never closed"),
        ("{{ if .a }}x", "if", "this `if` has no `{{end}}`"),
        ("{{ if .a }}x{{ else }}y", "if", "this `if` has no `{{end}}`"),
        ("{{ range }}x{{ end }}", "range", "`range` needs a value"),
        ("x{{ end }}", "end", "there is nothing open that this `end` could belong to"),
        ("{{ if 1 }}{{ else }}{{ else }}{{ end }}", "else }}{{ end", "there is an `else` before this one already"),
        ("{{ end 1 }}", "end", "there is nothing open"),
        ("{{ break }}", "break", "`break` is only possible inside `range`"),
        ('{{ define "x" }}{{ end }}', "define", "`define` is not supported: a template stands for itself"),
        ('{{ template "x" }}', "template", "`template` is not supported"),
        ('{{ block "x" . }}{{ end }}', "block", "`block` is not supported"),
        ("{{ call .f }}", "call", "the function `call` is not allowed: an event carries no functions"),
        ("{{ nil }}", "nil", "`nil` alone is not a value"),
        ("{{ }}", "}}", "a value is missing"),
        ("{{ .a | .b }}", ".b", "only a function can follow `|`"),
        ("{{ .a .b }}", ".b", "only a function can have arguments"),
        ("{{ 1x }}", "1x", "this is not a number"),
        ("{{ 99999999999999999999 }}", "9", "this number is too large"),
        ('{{ "\\q" }}', "\\q", "`\\q` is not an escape"),
        ("{{ true.x }}", "true", "there is no `.x` in a constant"),
    ],
)
def test_a_mistake_is_found_when_the_template_is_loaded(template: str, marked: str, message: str) -> None:
    with pytest.raises(TemplateSyntaxError) as caught:
        compile_template(template)
    assert caught.value.message.startswith(message)
    assert template[caught.value.index :].startswith(marked)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_every_refused_function_is_refused_by_name(name: str) -> None:
    with pytest.raises(TemplateSyntaxError, match=f"the function `{name}` is not allowed: "):
        compile_template(f"{{{{ {name} }}}}")


def test_no_function_is_both_there_and_refused() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert len(set(names)) == len(names)
    assert not set(names) & set(REFUSED)


def test_a_template_is_bounded_in_length_and_depth() -> None:
    with pytest.raises(TemplateSyntaxError, match="must not be longer"):
        compile_template("x" * (MAX_LENGTH + 1))
    for nested in ("{{ if 1 }}" * 100, "{{ " + "(" * 100 + "}}", "{{ if 1 }}" + "{{ else if 1 }}" * 100):
        with pytest.raises(TemplateSyntaxError, match=f"nested more than {MAX_DEPTH} deep"):
            compile_template(nested)


def test_an_error_at_run_time_says_where() -> None:
    with pytest.raises(TemplateError) as caught:
        compile_template('a\n  {{ fail "no" }}').render({})
    assert str(caught.value) == "line 2, column 6: fail: no"


# --- event data is data ---------------------------------------------------------------------------------------------

INJECTION = '{{ env "HOME" }}{{ .Input.secret }}{{ fail "x" }}'


@pytest.mark.parametrize(
    "template",
    ["{{ .Input.x }}", "{{ printf .Input.x }}", "{{ print .Input.x }}", "{{ with .Input.x }}{{ . }}{{ end }}",
     "{{ $v := .Input.x }}{{ $v }}", '{{ replace "@" .Input.x "@" }}', "{{ range list .Input.x }}{{ . }}{{ end }}"],
)  # fmt: skip
def test_templates_in_event_data_come_out_as_they_are(template: str) -> None:
    assert compile_template(template).render({"Input": {"x": INJECTION, "secret": "s"}}) == INJECTION


@pytest.mark.parametrize(
    "path", ["__class__", "Input.__class__.__mro__", "Input.x.upper", "Input.l.append", "Input.x.__len__", "Input.keys"]
)
def test_nothing_of_python_can_be_reached(path: str) -> None:
    try:
        rendered = compile_template(f"{{{{ .{path} }}}}").render({"Input": {"x": "a", "l": [1]}})
    except TemplateError:
        return
    assert rendered == "<no value>"


def test_only_json_data_goes_in() -> None:
    with pytest.raises(TemplateError, match="object is not JSON data"):
        compile_template("x").render({"Input": object()})


def test_rendering_changes_no_data() -> None:
    data = {"Input": {"a": {"b": 1}}}
    compile_template('{{ $_ := set .Input.a "b" 2 }}{{ $_ := unset .Input "a" }}').render(data)
    assert data == {"Input": {"a": {"b": 1}}}
