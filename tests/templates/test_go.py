"""What Go and sprig print is what we print. `go.json` was recorded from the real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sensors.templates import TemplateError, TemplateSyntaxError, compile_template

RECORDED = json.loads((Path(__file__).parent / "go.json").read_text())


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: case["template"][:40])
def test_a_template_prints_what_go_prints(case: dict[str, Any]) -> None:
    if "output" in case:
        assert compile_template(case["template"]).render({"Input": RECORDED["input"]}) == case["output"]
    else:
        with pytest.raises((TemplateError, TemplateSyntaxError)):
            compile_template(case["template"]).render({"Input": RECORDED["input"]})


@pytest.mark.parametrize(
    ("template", "output"),
    [
        ('{{ date "2006-01-02 15:04:05" 1700000000 }}', "2023-11-14 22:13:20"),
        ('{{ date "2006-01-02" .Input.at }}', "2023-11-14"),
        ('{{ dateInZone "15:04 MST -0700" 1700000000 "Europe/Berlin" }}', "23:13 CET +0100"),
        ('{{ dateInZone "15:04" 1700000000 "No/Where" }}', "22:13"),
        ('{{ htmlDate 0 }} {{ htmlDateInZone 0 "America/New_York" }}', "1970-01-01 1969-12-31"),
        ('{{ toDate "2006-01-02" "2020-02-28" | dateModify "48h" | date "Mon Jan _2 2006" }}', "Sun Mar  1 2020"),
        ('{{ toDate "2006-01-02" "2020-02-28" | dateModify "soon" | date "2.1.06" }}', "28.2.20"),
        ('{{ dateModify "-1.5h" (toDate "15:04" "12:00") | date "3:04 PM" }}', "10:30 AM"),
        ('{{ toDate "2006-01-02T15:04:05Z07:00" "2021-03-04T05:06:07.5+05:30" }}', "2021-03-04 05:06:07.5 +0530 +0530"),
        ('{{ slice "hello" 1 3 }}', "el"),
        ('{{ keys (dict "b" 1 "a" 2) }}{{ values (dict "b" 1 "a" 2) }}', "[a b][2 1]"),
        ('{{ sha512sum "" | trunc 8 }}', "cf83e135"),
    ],
)
def test_what_argo_events_leaves_to_chance_or_lacks_is_defined_here(template: str, output: str) -> None:
    assert compile_template(template).render({"Input": {"at": 1700000000}}) == output
