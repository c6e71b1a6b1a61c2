"""The metadata of commits: round trips, stays within its limit, and refuses what it cannot read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.errors import FormatError
from eventbus.metadata import (
    LIMIT,
    InvokeCommit,
    JoinCommit,
    Mark,
    Owner,
    decode_invoke,
    decode_join,
    decode_match,
    encode_invoke,
    encode_join,
    encode_match,
    marks_that_fit,
    open_that_fit,
)
from sensors.ledger import Ledger

OFFSETS = st.integers(0, 2**63 - 1)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


def digests(length: int) -> st.SearchStrategy[str]:
    return st.text(LETTERS, min_size=length, max_size=length)


owners = st.builds(Owner, st.integers(0, 2**63 - 1), digests(8))


@given(owners)
def test_match_round_trip(owner: Owner) -> None:
    assert decode_match(encode_match(owner)) == owner


@given(owners, OFFSETS, OFFSETS, st.dictionaries(digests(6), st.tuples(digests(4), st.integers(0, 10**6)), max_size=20))
def test_join_round_trip(owner: Owner, position: int, clock: int, marks: dict[str, tuple[str, int]]) -> None:
    placed = {name: Mark(shape, max(0, position - back)) for name, (shape, back) in marks.items()}
    commit = JoinCommit(owner, position, clock, placed)
    encoded = encode_join(commit)
    assert encoded.isascii()
    assert decode_join(commit.offset, encoded) == commit


@given(OFFSETS)
def test_as_many_marks_as_promised_always_fit(position: int) -> None:
    owner = Owner(2**63 - 1, "x" * 8)
    count = marks_that_fit(position)
    marks = {f"{number:06d}": Mark("wxyz", 0) for number in range(count - 1)} | {"zzzzzz": Mark("wxyz", position)}
    commit = JoinCommit(owner, position, 2**63 - 1, marks)
    assert len(encode_join(commit)) <= LIMIT
    assert count >= 120


@given(st.lists(st.booleans(), min_size=1, max_size=2000), st.integers(0, 2**60), st.integers(1, 1000))
def test_the_ledger_never_outgrows_the_metadata(finished: list[bool], start: int, stride: int) -> None:
    ledger = Ledger(Owner(2**63 - 1, "x" * 8), InvokeCommit(Owner(1, "x" * 8), start, ()))
    for number, done in enumerate(finished):
        if not ledger.has_room():
            break
        offset = start + number * stride
        assert ledger.open(offset)
        if done:
            ledger.finish(offset)
        commit = ledger.commit()
        assert len(encode_invoke(commit)) <= LIMIT
    assert decode_invoke(commit.offset, encode_invoke(commit)) == commit


@given(st.lists(st.booleans(), max_size=60), st.data())
def test_a_successor_opens_exactly_what_is_not_finished(finished: list[bool], data: st.DataObject) -> None:
    owner = Owner(1, "x" * 8)
    ledger = Ledger(owner, InvokeCommit(owner, 0, ()))
    offsets = [2 * number for number in range(len(finished))]
    seen = data.draw(st.integers(0, len(offsets)))
    for offset in offsets[:seen]:
        ledger.open(offset)
    for offset, done in zip(offsets[:seen], finished, strict=False):
        if done:
            ledger.finish(offset)
    handed_over = ledger.commit()
    successor = Ledger(owner, decode_invoke(handed_over.offset, encode_invoke(handed_over)))
    todo = [offset for offset in offsets if offset >= handed_over.offset and successor.open(offset)]
    assert todo == [offset for index, offset in enumerate(offsets) if index >= seen or not finished[index]]


def test_an_open_range_beyond_what_the_successor_has_read_is_not_forgotten() -> None:
    owner = Owner(1, "x" * 8)
    ledger = Ledger(owner, InvokeCommit(owner, 10, [(12, 15), (20, 21)]))
    ledger.open(10)
    assert ledger.commit() == InvokeCommit(owner, 10, [(12, 15), (20, 21)])
    ledger.finish(10)
    assert ledger.commit() == InvokeCommit(owner, 11, [(12, 15), (20, 21)])


def test_a_few_hundred_actions_may_be_open_at_once() -> None:
    assert open_that_fit(1_000) > 300
    assert open_that_fit(1_000_000) > 200


@pytest.mark.parametrize("metadata", ["", "x", "j2;1;abcdefgh;1;1;", "j1;1;abcdefgh;1;1;short0", "m1;1;abcdefgh", "{}"])
def test_join_metadata_that_cannot_be_read_stops_and_is_never_taken_for_empty(metadata: str) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        decode_join(0, metadata)


@pytest.mark.parametrize("metadata", ["", "i1;1;abcdefgh;1", "i1;1;abcdefgh;1.", "i9;1;abcdefgh;", "i1;1;abcdefgh;1.x"])
def test_invoke_metadata_that_cannot_be_read_stops(metadata: str) -> None:
    with pytest.raises(FormatError):
        decode_invoke(0, metadata)


def test_join_metadata_of_another_offset_is_refused() -> None:
    with pytest.raises(FormatError, match="belongs to offset 7"):
        decode_join(6, "j1;1;abcdefgh;7;0;")
