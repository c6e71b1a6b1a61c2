"""`docs/command-line.md` mentions every command and every option, in the right place, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from eventbus.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
COMMON = "Options that many commands have"


def _commands() -> dict[str, set[str]]:
    """Every command with its options, as typer knows them."""
    found: dict[str, set[str]] = {}
    unseen = [("eventbus", typer.main.get_command(app))]
    while unseen:
        name, command = unseen.pop()
        below = getattr(command, "commands", {})
        unseen += [(f"{name} {each}", sub) for each, sub in below.items()]
        if not below:
            options = [option for each in command.params for option in (*each.opts, *each.secondary_opts)]
            found[name] = {option for option in options if option.startswith("-")} - {"--help"}
    return found


def _sections() -> dict[str, str]:
    parts = re.split(r"^## `?(.*?)`?$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))


def test_every_command_has_a_section_and_there_are_no_others() -> None:
    documented = {heading for heading in _sections() if heading.startswith("eventbus ")}
    assert documented == set(_commands())


@pytest.mark.parametrize("command", sorted(_commands()))
def test_every_option_of_a_command_is_mentioned(command: str) -> None:
    sections = _sections()
    mentioned = _options(sections[command]) | _options(sections[COMMON])
    assert _commands()[command] - mentioned == set()


def test_no_option_is_mentioned_that_does_not_exist() -> None:
    real = {"--help", "--debug", "--version"}.union(*_commands().values())
    assert _options(PAGE.read_text()) - real == set()


def test_every_exit_code_is_explained() -> None:
    codes = set(re.findall(r"^\| (\d+) \|", _sections()["Exit codes"], flags=re.MULTILINE))
    assert codes == {"0", "1", "2", "3", "4", "130"}
