"""What an archive's files say, without Spark: how far it reaches, what is left of a range, and damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.errors import ConfigError, FormatError
from eventbus.names import BusName, SensorName, Stage
from eventbus.ports import Committed
from sensors.spark.archive import Archive, Gap, Reach, without

BUS = BusName("here", "bus")
SPANS = st.tuples(st.integers(0, 30), st.integers(0, 30))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "archive")
    made.introduce(BUS, {"t": "id"})
    return made


def _file(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def _batch(archive: Archive, number: int, offsets: str, *, listed: bool = True, done: bool = True) -> None:
    _file(archive.checkpoint("t") / "offsets" / str(number), "v1", "{}", offsets)
    if listed:
        _file(archive.records("t") / "_spark_metadata" / str(number), "v1", '{"path":"a"}')
    if done:
        _file(archive.checkpoint("t") / "commits" / str(number), "v1", "{}")


@given(SPANS, st.lists(SPANS))
def test_what_is_left_of_a_range(span: tuple[int, int], holes: list[tuple[int, int]]) -> None:
    left = without(span, holes)
    assert [n for low, high in left for n in range(low, high)] == [
        n for n in range(*span) if not any(low <= n < high for low, high in holes)
    ]
    assert all(low < high for low, high in left)


def test_a_batch_counts_from_when_its_files_are_listed(archive: Archive) -> None:
    assert archive.reach("t") is None
    assert archive.covered("t") == {}
    _file(archive.checkpoint("t") / "sources" / "0" / "0", "\0v1", '{"t":{"0":5}}')
    assert archive.reach("t") == Reach({0: 5}, {0: 5}, pending=False)
    _batch(archive, 0, '{"t":{"0":10}}', listed=False, done=False)
    assert archive.reach("t") == Reach({0: 5}, {0: 5}, pending=True)
    _batch(archive, 0, '{"t":{"0":10}}', done=False)
    assert archive.reach("t") == Reach({0: 5}, {0: 10}, pending=True)
    _batch(archive, 0, '{"t":{"0":10}}')
    assert archive.reach("t") == Reach({0: 5}, {0: 10}, pending=False)
    _batch(archive, 1, '{"t":{"0":10,"1":7}}')  # a partition that was added to the topic
    assert archive.covered("t") == {0: [(5, 10)], 1: [(0, 7)]}


def test_accepted_losses_are_no_part_of_it_and_grow(archive: Archive) -> None:
    _file(archive.checkpoint("t") / "sources" / "0" / "0", "\0v1", '{"t":{"0":0}}')
    _batch(archive, 0, '{"t":{"0":100}}')
    archive.accept([Gap("t", 0, 20, 30), Gap("other", 0, 0, 50)])
    archive.accept([Gap("t", 0, 20, 40), Gap("t", 0, 60, 70)])
    assert archive.covered("t") == {0: [(0, 20), (40, 60), (70, 100)]}


def test_files_of_batches_that_spark_has_merged_count_once(archive: Archive) -> None:
    folder = archive.records("t") / "_spark_metadata"
    for number in range(9):
        _file(folder / str(number), "v1", '{"path":"a"}', '{"path":"b"}')
    _file(folder / "9.compact", "v1", *['{"path":"a"}'] * 20)
    _file(folder / "10", "v1", '{"path":"c"}')
    _file(folder / ".10.crc", "{")
    assert archive.files("t") == 21


def test_damage_is_told(archive: Archive) -> None:
    file = archive.checkpoint("t") / "sources" / "0" / "0"
    for content in ("", "v1", "v1\n[]", 'v1\n{"other":{}}', 'v1\n{"t":5}'):
        _file(file, content)
        with pytest.raises(FormatError, match=f"{file}: the checkpoint is damaged"):
            archive.reach("t")
    _file(file, 'v1\n{"t":{"0":0}}')
    _file(archive.checkpoint("t") / "commits" / "3", "v1")
    with pytest.raises(FormatError, match="batch 3 has no offsets"):
        archive.reach("t")


def test_commits_come_back_as_they_were(archive: Archive) -> None:
    name = SensorName(BUS, "orders")
    assert archive.commits(name) is None
    commits = {stage: {0: Committed(7, f'{stage};ä"\\'), 11: Committed(0, "")} for stage in Stage}
    archive.keep_commits(name, commits, 5)
    assert Archive.open(archive.directory, BUS).commits(name) == commits
    assert [file.name for file in (archive.directory / "commits").iterdir()] == ["orders.json"]  # no drafts


def test_only_one_at_a_time(archive: Archive) -> None:
    with archive.locked(), pytest.raises(ConfigError, match="one archiver at a time"), archive.locked():
        pass
    with archive.locked():
        pass
