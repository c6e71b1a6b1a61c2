"""`eventbus validate`: every problem of every file, with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import JOIN, Command

UNUSED = JOIN.replace("paid && packed", "paid")


def test_a_good_manifest_is_told_so(cli: Command, orders: Path) -> None:
    answer = cli("validate", orders)
    assert answer == (0, f"ok: {orders}: orders\n", "1 file, 0 errors, 0 warnings\n")


def test_a_problem_has_a_place_and_an_excerpt(cli: Command, orders: Path) -> None:
    orders.write_text(JOIN.replace("conditions: paid", "conditions: payed"))
    answer = cli("validate", orders)
    assert answer.code == 2
    assert answer.out.startswith(f"error: {orders}:12:21: ")
    assert "   12 |         conditions: payed && packed\n      |                     ^" in answer.out
    assert answer.err == "1 file, 1 error, 0 warnings\n"


def test_directories_are_searched_and_all_files_reported(cli: Command, tmp_path: Path) -> None:
    below = tmp_path / "manifests" / "deep"
    hidden = tmp_path / "manifests" / ".cache"
    below.mkdir(parents=True)
    hidden.mkdir()
    (below / "good.yml").write_text(JOIN)
    (below.parent / "bad.yaml").write_text("kind: [")
    (below.parent / "notes.txt").write_text("not a manifest")
    (hidden / "bad.yaml").write_text("kind: [")
    answer = cli("validate", tmp_path / "manifests")
    assert answer.code == 2
    assert f"error: {below.parent / 'bad.yaml'}:2:1: malformed YAML" in answer.out
    assert f"ok: {below / 'good.yml'}: orders" in answer.out
    assert answer.err == "2 files, 1 error, 0 warnings\n"


def test_a_directory_without_manifests_is_a_mistake(cli: Command, tmp_path: Path) -> None:
    answer = cli("validate", tmp_path)
    assert answer == (2, "", f"error: {tmp_path}: there is no *.yaml or *.yml file in this directory\n")


def test_a_file_that_is_not_there_is_named(cli: Command, tmp_path: Path) -> None:
    answer = cli("validate", tmp_path / "nowhere.yaml")
    assert answer.code == 2
    assert f"{tmp_path / 'nowhere.yaml'}: cannot be read: No such file or directory" in answer.out


def test_a_warning_is_an_error_only_if_that_is_asked_for(cli: Command, orders: Path) -> None:
    orders.write_text(UNUSED)
    relaxed = cli("validate", orders)
    assert relaxed.code == 0
    assert f"warning: {orders}:8:" in relaxed.out
    assert cli("validate", "--strict", orders).code == 2


@pytest.mark.parametrize(("text", "code", "valid"), [(UNUSED, 0, True), ("spec: {}", 2, False)])
def test_programs_get_one_object(cli: Command, orders: Path, text: str, code: int, valid: bool) -> None:
    orders.write_text(text)
    answer = cli("validate", orders, "--output", "json")
    report = json.loads(answer.out)
    assert (answer.code, report["valid"]) == (code, valid)
    [file] = report["files"]
    assert file["file"] == str(orders)
    assert bool(file["errors"]) is not valid
    assert all({"message", "file", "line", "column", "excerpt"} == set(each) for each in file["errors"])
    assert [warning["line"] for warning in file["warnings"]] == ([8] if valid else [])


def test_a_flood_of_errors_is_cut_off(cli: Command, orders: Path) -> None:
    fields = "".join(f"  field{number}: 1\n" for number in range(70))
    orders.write_text(JOIN.replace("spec:\n", f"spec:\n{fields}"))
    answer = cli("validate", orders)
    assert f"… and 20 more errors in {orders}" in answer.out
    assert answer.err == "1 file, 70 errors, 0 warnings\n"
