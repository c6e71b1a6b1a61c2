"""Events in files: complete CloudEvents are read strictly, short ones are completed."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.cloudevents import to_json
from eventbus.errors import ConfigError
from eventbus.events import Event
from eventbus.jsonl import parse_lines, read_events, read_lines

COMPLETE = b'{"specversion":"1.0","id":"1","source":"shop","type":"t","name":"kept","data": 1.50 }'


def _one(line: bytes) -> Event:
    [parsed] = parse_lines([line], "f")
    return parsed.event


def test_a_complete_event_is_taken_as_it_is() -> None:
    event = _one(COMPLETE)
    assert event.attributes == {"specversion": "1.0", "id": "1", "source": "shop", "type": "t", "name": "kept"}
    assert event.data == b"1.50"


def test_the_short_form_is_completed() -> None:
    event = _one(b'{"source": "shop", "name": "order", "data": {"id": 17}, "partitionkey": "c-3"}')
    assert (event.source, event.subject, event.type) == ("shop", "order", "dev.eventbus.event")
    assert event.data == b'{"id": 17}'
    assert event.key == b"c-3"
    assert event.attributes["datacontenttype"] == "application/json"
    assert event.id != _one(b'{"source": "shop", "name": "order"}').id


def test_the_short_form_keeps_what_it_says() -> None:
    event = _one(b'{"source":"s","subject":"n","id":"i","type":"t","datacontenttype":"text/plain","data":"hi"}')
    assert (event.id, event.type, event.subject, event.data) == ("i", "t", "n", b"hi")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"specversion":"1.0","source":"shop","type":"t"}', "the required attribute `id` is missing"),
        (
            b'{"specversion":"2.0","id":"1","source":"shop","type":"t"}',
            "specversion `2.0` is not known; 1.0 and 0.3 are",
        ),
        (b'{"name":"order"}', "the required attribute `source` is missing"),
        (b'{"source":"s","name":"n","subject":"n"}', "`name` and `subject` mean the same: leave one out"),
        (b'{"source":"s","name":"n","Upper":"x"}', "the attribute name `Upper` is not allowed"),
        (b"[1]", "not a JSON object: Expected `object`, got `array`"),
        (b'{"source":', "not a JSON object: Input data was truncated"),
        (b'{"source":"\xff"}', "not UTF-8: see byte 12 of the line"),
    ],
)
def test_a_bad_line_is_named(line: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        list(parse_lines([COMPLETE, b"\n", line], "events.jsonl"))
    assert str(error.value).startswith(f"events.jsonl:3: {message}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere: cannot be read: No such file or directory$"):
        list(read_events(tmp_path / "nowhere"))


def test_the_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n" + COMPLETE)))
    assert [line.place for line in read_lines("-")] == ["<stdin>:2"]


_names = st.text(st.characters(codec="utf-8"), min_size=1)


@given(events=st.lists(st.builds(Event.new, _names, _names, st.none() | st.dictionaries(_names, st.integers()))))
def test_what_is_written_as_lines_is_read_again(events: list[Event]) -> None:
    written = b"\n".join(map(to_json, events))
    assert [line.event for line in parse_lines(io.BytesIO(written), "f")] == events
