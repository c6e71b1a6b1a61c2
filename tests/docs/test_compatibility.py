"""The page about argo-events says what is true: about its examples, and about the tests that it names."""

from __future__ import annotations

import pytest

from docs.argo import FIELDS, PAINS, PROBLEMS
from docs.compatibility import CORPUS, committed_results, example_results, fault_tests
from eventsources.kinds import DIFFERENT, KINDS
from eventsources.sources import SOURCES


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus ../shared/corpus is not there")
def test_what_is_said_about_examples_is_true() -> None:
    said, true = committed_results(), example_results()
    assert said
    assert {file: said[file] for file in said if file in true} == {file: true[file] for file in said if file in true}, (
        "run `make docs`"
    )


def test_every_fault_has_a_test_that_is_named_after_it() -> None:
    faults = {*(("problem", number) for number in PROBLEMS), *(("pain", number) for number in PAINS)}
    tested = {(test.kind, test.number) for test in fault_tests()}
    assert tested - faults == set()
    assert faults - tested == set()


def test_every_test_of_a_fault_says_what_the_fault_is() -> None:
    assert [test.place for test in fault_tests() if not test.fault] == []


@pytest.mark.parametrize("kind", KINDS)
def test_differences_are_about_fields_of_argo_events(kind: str) -> None:
    known = {f"{place}.{name}" for place, names in FIELDS[kind].items() for name in names.split()}
    assert {field for each in DIFFERENT[kind] for field in each.fields} - known == set()


@pytest.mark.parametrize("kind", KINDS)
def test_places_of_fields_are_fields_themselves(kind: str) -> None:
    """One that is misspelt would be taken for refused."""
    for place in FIELDS[kind]:
        parent, _, name = place.rpartition(".")
        assert not parent or name.rstrip("[]{}") in FIELDS[kind][parent].split()


def test_every_kind_of_source_is_measured_against_argo_events() -> None:
    """The fields of a new one belong in docs/argo.py, unless argo-events has no such kind."""
    theirs = set(FIELDS["EventSource"]["spec"].split())
    assert {kind for kind in SOURCES if kind in theirs} <= {place[5:-2] for place in FIELDS["EventSource"]}
