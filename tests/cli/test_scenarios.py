"""`eventbus test` and its twin in pytest: what differs is shown, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import EVENTS, JOIN, Command

FIRED = '{"trigger": "ship", "events": {"paid": "paid-1", "packed": "packed-1"}}\n'
NEVER = '{"trigger": "ship", "events": {"paid": "paid-2", "packed": "packed-2"}}\n'


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    folder = tmp_path / "scenarios" / "shipping"
    folder.mkdir(parents=True)
    (folder / "sensor.yaml").write_text(JOIN)
    (folder / "events.jsonl").write_text(EVENTS)
    (folder / "expected.jsonl").write_text(FIRED)
    return folder


def test_a_scenario_passes(cli: Command, scenario: Path) -> None:
    assert cli("test", scenario) == (0, f"ok: {scenario}: 1 as expected\n", "1 passed, 0 failed\n")


def test_scenarios_are_found_below_a_folder_unless_hidden(cli: Command, scenario: Path) -> None:
    scenario.rename(scenario.with_name(".shipping"))
    answer = cli("test", scenario.parent)
    assert (answer.code, answer.out) == (2, "")
    assert "there is no folder with sensor.yaml, events.jsonl and expected.jsonl here" in answer.err
    scenario.with_name(".shipping").rename(scenario)
    assert cli("test", scenario.parent.parent).code == 0


def test_what_is_missing_and_what_is_too_much_is_shown(cli: Command, scenario: Path) -> None:
    (scenario / "expected.jsonl").write_text(NEVER)
    answer = cli("test", scenario)
    assert answer.code == 1
    assert answer.out.splitlines() == [
        f"failed: {scenario / 'expected.jsonl'}:1: expected (-) and fired (+) differ",
        '    - {"events":{"packed":"packed-2","paid":"paid-2"},"trigger":"ship"}',
        '    + {"events":{"packed":"packed-1","paid":"paid-1"},"trigger":"ship"}',
    ]
    assert answer.err == "0 passed, 1 failed\n"


@pytest.mark.parametrize(("expected", "signs"), [("", ["+"]), (FIRED + NEVER, ["-"]), (FIRED + FIRED, ["-"])])
def test_order_and_number_count(cli: Command, scenario: Path, expected: str, signs: list[str]) -> None:
    (scenario / "expected.jsonl").write_text(expected)
    answer = cli("test", scenario)
    assert [line.split()[0] for line in answer.out.splitlines()[1:]] == signs


def test_programs_get_one_object_per_scenario(cli: Command, scenario: Path) -> None:
    (scenario / "expected.jsonl").write_text(FIRED + NEVER)
    answer = cli("test", scenario, "--output", "json")
    report = json.loads(answer.out)
    assert (answer.code, report["passed"], report["expected"], report["unexpected"]) == (1, False, 2, [])
    assert [each["events"]["paid"] for each in report["missing"]] == ["paid-2"]


@pytest.mark.parametrize("line", ["{", '{"trigger": "ship"}', '{"trigger": "ship", "events": {}, "extra": 1}', "[]"])
def test_a_line_that_cannot_be_read_is_named(cli: Command, scenario: Path, line: str) -> None:
    (scenario / "expected.jsonl").write_text(f"{FIRED}\n{line}\n")
    answer = cli("test", scenario)
    assert answer.code == 2
    assert answer.err.startswith(f"error: {scenario / 'expected.jsonl'}:3: ")


def test_a_mistake_in_the_sensor_is_told_as_validate_tells_it(cli: Command, scenario: Path) -> None:
    (scenario / "sensor.yaml").write_text(JOIN.replace("paid && packed", "paid && unpacked"))
    answer = cli("test", scenario)
    assert answer.code == 2
    assert f"{scenario / 'sensor.yaml'}:12:" in answer.err


pytest_plugins = ["pytester"]


def test_pytest_runs_the_same_folders(pytester: pytest.Pytester, scenario: Path) -> None:
    failing = scenario.with_name("failing")
    failing.mkdir()
    for name in ("sensor.yaml", "events.jsonl"):
        (failing / name).write_text((scenario / name).read_text())
    (failing / "expected.jsonl").write_text(NEVER)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", str(scenario.parent))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ['- {"events":{"packed":"packed-2","paid":"paid-2"},"trigger":"ship"}', "+ *packed-1*paid-1*"]
    )
    assert "Traceback" not in result.stdout.str()
