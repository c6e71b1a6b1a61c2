"""`eventbus validate`: every problem of every file, with its place."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import JOIN, Command

UNUSED = JOIN.replace("paid && packed", "paid")


def test_a_good_manifest_is_told_so(cli: Command, orders: Path) -> None:
    answer = cli("validate", orders)
    assert answer == (0, f"ok: {orders}: orders\n", "1 file, 1 sensor, 0 errors, 0 warnings\n")


def test_a_problem_has_a_place_and_an_excerpt(cli: Command, orders: Path) -> None:
    orders.write_text(JOIN.replace("conditions: paid", "conditions: payed"))
    answer = cli("validate", orders)
    assert answer.code == 1
    assert answer.out.startswith(f"error: {orders}:12:21: ")
    assert "   12 |         conditions: payed && packed\n      |                     ^" in answer.out
    assert answer.err == "1 file, 0 sensors, 1 error, 0 warnings\n"


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
    assert answer.code == 1
    assert f"error: {below.parent / 'bad.yaml'}:2:1: malformed YAML" in answer.out
    assert f"ok: {below / 'good.yml'}: orders" in answer.out
    assert answer.err == "2 files, 1 sensor, 1 error, 0 warnings\n"


def test_a_directory_without_manifests_is_a_mistake(cli: Command, tmp_path: Path) -> None:
    answer = cli("validate", tmp_path)
    assert answer == (2, "", f"error: {tmp_path}: there is no *.yaml or *.yml file in this directory\n")


def test_a_file_that_is_not_there_is_named(cli: Command, tmp_path: Path) -> None:
    answer = cli("validate", tmp_path / "nowhere.yaml")
    assert answer.code == 1
    assert f"{tmp_path / 'nowhere.yaml'}: cannot be read: No such file or directory" in answer.out


def test_a_warning_is_an_error_only_if_that_is_asked_for(cli: Command, orders: Path) -> None:
    orders.write_text(UNUSED)
    relaxed = cli("validate", orders)
    assert relaxed.code == 0
    assert f"warning: {orders}:8:" in relaxed.out
    assert cli("validate", "--strict", orders).code == 1


@pytest.mark.parametrize(("text", "code", "valid"), [(UNUSED, 0, True), ("spec: {}", 1, False)])
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
    assert answer.err == "1 file, 0 sensors, 70 errors, 0 warnings\n"


EVENT_SOURCE = """\
apiVersion: argoproj.io/v1alpha1
kind: EventSource
metadata: {name: shop}
spec: {webhook: {order: {port: "12000", endpoint: /order}}}
"""
EVENT_BUS = """\
apiVersion: argoproj.io/v1alpha1
kind: EventBus
metadata: {name: default}
spec: {kafka: {url: "kafka-0:9092", producer: {linger.ms: "20"}}}
"""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
MISSPELT = JOIN.replace("conditions: paid", "conditions: payed")


def test_documents_of_other_kinds_are_passed_over_and_counted(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("---\n".join([EVENT_SOURCE, JOIN, "# nothing\n", CONFIG_MAP]))
    answer = cli("validate", tmp_path)
    passed_over = "1 document of other kinds passed over"
    assert answer == (
        0,
        f"ok: {tmp_path / 'all.yaml'}: orders, shop\n",
        f"1 file, 1 sensor, 1 event source, 0 errors, 0 warnings, {passed_over}\n",
    )


@pytest.mark.parametrize(
    ("wrong", "place", "message"),
    [
        ("endpoint: order}", "4:51", "`endpoint` must be a path such as `/orders`, not `order`"),
        ("endpiont: /order}", "4:41", "unknown field `endpiont`"),
        ("endpoint: /order, method: GET}", "4:67", "`method` must be POST, PUT or PATCH, not `GET`"),
    ],
)
def test_what_is_wrong_with_an_event_source_is_told(
    cli: Command, orders: Path, wrong: str, place: str, message: str
) -> None:
    orders.write_text(EVENT_SOURCE.replace("endpoint: /order}", wrong))
    out = cli("validate", orders).out
    assert f"error: {orders}:{place}" in out
    assert message in out


@pytest.mark.parametrize(
    ("wrong", "column", "message"),
    [
        ("linger.mss", 60, "No such configuration property"),
        ("acks", 48, "`acks` is chosen by the event bus"),
    ],
)
def test_what_is_wrong_with_an_event_bus_is_told(
    cli: Command, orders: Path, wrong: str, column: int, message: str
) -> None:
    orders.write_text(f"{JOIN}---\n{EVENT_BUS.replace('linger.ms', wrong)}")
    answer = cli("validate", orders, "--output", "json")
    report = json.loads(answer.out)
    [error] = report["files"][0]["errors"]
    assert (answer.code, error["line"], error["column"]) == (1, JOIN.count("\n") + 5, column)
    assert message in error["message"]


def test_event_buses_are_counted(cli: Command, orders: Path) -> None:
    orders.write_text("---\n".join([JOIN, EVENT_BUS, EVENT_BUS.replace("default", "other")]))
    answer = cli("validate", orders)
    assert answer.out == f"ok: {orders}: orders, default, other\n"
    assert answer.err == "1 file, 1 sensor, 2 event buses, 0 errors, 0 warnings\n"
    report = json.loads(cli("validate", orders, "--output", "json").out)
    assert (report["summary"]["event_buses"], report["files"][0]["event_buses"]) == (2, ["default", "other"])


@pytest.mark.parametrize("kind", ["sensor", "Sensors", "Sensro"])
def test_a_kind_that_is_misspelt_is_not_another_kind(cli: Command, orders: Path, kind: str) -> None:
    orders.write_text(JOIN.replace("kind: Sensor", f"kind: {kind}"))
    assert f"error: {orders}:2:7: `kind` cannot be `{kind}`; write `Sensor`" in cli("validate", orders).out


def test_nothing_but_other_kinds_is_probably_not_what_was_meant(cli: Command, orders: Path) -> None:
    orders.write_text(CONFIG_MAP)
    answer = cli("validate", orders)
    assert (answer.code, answer.out) == (0, f"warning: {orders}: there is no Sensor, EventSource or EventBus here\n")
    assert cli("validate", orders, "--strict").code == 1


@pytest.mark.parametrize(
    ("bad", "line", "message"),
    [
        ("kind: [\n", 16, "this bracket is never closed"),
        ('kind: "\n', 15, "this quote is never closed"),
        ("kind: Sensor\nno value\n", 17, "could not find expected ':'"),
        ("a: 1\n b: 2\n", 16, "a `:` is not expected here"),
        ("a: *b\n", 15, "refers to an anchor that does not exist"),
        ("apiVersion: v1\nkind: Secret # \u0007\n", 16, "this control character is not allowed"),
        ("- " * 70 + "a\n", 15, "nested more than 64 deep"),
    ],
)
def test_a_document_that_cannot_be_read_does_not_hide_the_others(
    cli: Command, orders: Path, bad: str, line: int, message: str
) -> None:
    orders.write_text("---\n".join([MISSPELT, bad, MISSPELT.replace("orders", "others")]))
    errors = json.loads(cli("validate", orders, "-o", "json").out)["files"][0]["errors"]
    assert [each["line"] for each in errors] == [12, line, 27 + bad.count("\n")]
    assert message in errors[1]["message"]
    assert "payed" in errors[2]["excerpt"]


def test_a_file_full_of_rubbish_is_not_read_to_its_end(cli: Command, orders: Path) -> None:
    orders.write_text("---\n[\n" * 100_000)
    errors = json.loads(cli("validate", orders, "-o", "json").out)["files"][0]["errors"]
    assert len(errors) == 21
    assert "too many documents cannot be read" in errors[0]["message"]


def test_several_files_and_the_standard_input(
    cli: Command, orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "others.yaml"
    other.write_text(MISSPELT)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(MISSPELT.encode())))
    answer = cli("validate", other, "-", orders)
    places = [line.partition(": ")[2].partition(": ")[0] for line in answer.out.splitlines() if not line[0].isspace()]
    assert places == [f"{other}:12:21", "<stdin>:12:21", str(orders)]
    assert (answer.code, answer.err) == (1, "3 files, 1 sensor, 2 errors, 0 warnings\n")


def test_no_file_at_all_is_wrong_usage(cli: Command) -> None:
    assert cli("validate").code == 2
