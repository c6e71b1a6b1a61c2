"""`eventbus archive` as a process that is killed: whenever that is, each record ends up in the archive once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eventbus import Bus
from sensors.spark.archive import Archive
from tests.cli.processes import Program
from tests.spark.conftest import spark
from tests.spark.logs import committed_records, places, write_transactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(900),  # five times a Spark of its own
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

_LOOK_SECONDS = 0.005
_SPARK_SECONDS = 300


def _numbers(folder: Path) -> int:
    """The highest number of a batch that has a file there."""
    names = [each.name.removesuffix(".compact") for each in folder.glob("*")] if folder.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _kill_when(program: Program, due: Callable[[], bool]) -> None:
    """Look at the files while it runs; if it ends before, the test has missed what it is about."""
    while not due():
        with suppress(subprocess.TimeoutExpired):
            code = program.process.wait(_LOOK_SECONDS)
            pytest.fail(f"ended with {code}: {program.out} {program.err}")
    pid = program.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)  # Java first: it would tidy up where it sees that Python has gone
    program.signal(signal.SIGKILL)
    program.end()


def test_killed_at_every_step_of_a_batch(spark: SparkSession, kafka_bus: Bus, tmp_path: Path) -> None:
    from sensors.spark.history import as_python
    from sensors.spark.records import archived

    kafka_bus.ensure(2)
    topic = kafka_bus.name.event_topic
    write_transactions(kafka_bus.bootstrap_servers, topic, partitions=2, rounds=44)
    archive = Archive(tmp_path / "archive")
    checkpoint, records = archive.checkpoint(topic), archive.records(topic)
    where = ["--bootstrap-servers", kafka_bus.bootstrap_servers, "--namespace", kafka_bus.name.namespace]
    command = ["archive", archive.directory, "--batch-records", 24, "--master", "local[2]", *where]

    def planned() -> int:
        return _numbers(checkpoint / "offsets")

    def listed() -> int:
        return _numbers(records / "_spark_metadata")

    def done() -> int:
        return _numbers(checkpoint / "commits")

    def files() -> int:
        return sum(1 for _ in records.rglob("*.parquet"))

    steps: list[Callable[[int], bool]] = [
        lambda before: planned() > max(before, listed()),  # a batch is planned, and nothing of it is written
        lambda _: files() > archive.files(topic),  # a file of it is there, and not listed
        lambda before: listed() > max(before, done()),  # its files are listed, and it is not marked as done
        lambda before: done() > before,  # it is
    ]
    seen = []
    for step in steps:
        due = partial(step, planned())
        with Program(*command) as program:
            _kill_when(program, due)
        seen.append((planned(), listed(), done(), files()))
    assert done() < 264 // 24 - 1, f"there was nothing left to do after the last kill: {seen}"

    with Program(*command, "--output", "json") as program:
        assert program.end(_SPARK_SECONDS) == 0, program.err
    [report] = [json.loads(line) for line in program.out]
    assert report["offsets"] == {"0": [0, 132], "1": [0, 132]}
    assert files() > archive.files(topic), f"no kill has left a file that does not count: {seen}"
    expected = committed_records(kafka_bus.cluster, topic)
    rows = archived(spark, archive, topic).collect()
    assert len(expected) == 110
    assert places(as_python(topic, rows)) == places(expected)  # which are sorted lists: nothing is there twice
    assert {row["type"] for row in rows} == {"order"}
    assert archive.covered(topic) == {0: [(0, 132)], 1: [(0, 132)]}
