"""What log lines look like, with and without a sensor's own fields."""

from __future__ import annotations

import json
import logging
from contextvars import copy_context

import pytest

from eventbus.cli.logs import LogFormat, set_up_logging
from eventbus.logfields import carry


def _written(log_format: LogFormat, capsys: pytest.CaptureFixture[str], **fields: str) -> str:
    def write() -> None:
        carry(fields)
        set_up_logging(logging.INFO, log_format)
        logging.getLogger("eventbus.action.any").info("done", extra={"trigger": "t"})

    copy_context().run(write)
    return capsys.readouterr().err.strip()


def test_fields_are_at_the_end_of_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _written(LogFormat.TEXT, capsys, team="shop", env="live").endswith(" INFO    done team=shop env=live")
    assert _written(LogFormat.TEXT, capsys).endswith(" INFO    done")


def test_fields_are_members_of_an_object_and_replace_none(capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads(_written(LogFormat.JSON, capsys, team="shop", trigger="mine", message="mine", level="mine"))
    assert (line["team"], line["trigger"], line["message"], line["level"]) == ("shop", "t", "done", "info")
    assert "logging_fields" not in line
