"""Every command line on the pages is one that the program understands, and the offline ones are run."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from eventbus.cli.main import app
from tests.docs.pages import ROOT, pages

OTHERS = ROOT / "docs/command-line.md"  # has tests of its own
LINES = re.compile(r"^(?: {4})?(eventbus .*)$", re.MULTILINE)
MENTIONS = re.compile(r"`eventbus ([a-z]+(?: [a-z]+)?)")


def _commands(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    mine = [page for page in pages() if page != OTHERS]
    return sorted({(str(page.relative_to(ROOT)), text) for page in mine for text in pattern.findall(page.read_text())})


def _command(words: list[str]) -> tuple[TyperCommand | TyperGroup, list[str]]:
    """The command that these words name, and the words that are left for it."""
    command = get_command(app)
    while isinstance(command, TyperGroup) and words:
        name, *words = words
        assert name in command.commands, f"there is no command `{name}`"
        command = command.commands[name]
    assert isinstance(command, TyperCommand | TyperGroup)
    return command, words


@pytest.mark.parametrize(("page", "line"), _commands(LINES))
def test_command_lines_are_understood(page: str, line: str) -> None:
    _, *words = shlex.split(line.partition(" | ")[0], comments=True)
    command, arguments = _command(words)
    assert isinstance(command, TyperCommand)
    command.make_context(command.name, arguments)


@pytest.mark.parametrize(("page", "words"), _commands(MENTIONS))
def test_mentioned_commands_exist(page: str, words: str) -> None:
    _command(words.split())


@pytest.mark.parametrize(
    "line", sorted({line for page, line in _commands(LINES) if page.startswith("examples") and " explain " in line})
)
def test_the_examples_are_explained(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = CliRunner().invoke(app, shlex.split(line)[1:])
    assert ran.exit_code == 0, ran.output
    expected = (ROOT / shlex.split(line)[2]).with_name("expected.jsonl").read_text().splitlines()
    assert ran.output.count(" fired ") == len(expected)
