"""Topics as Parquet: exactly once, with all that can be in a topic, and read together with what Kafka still has."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from eventbus import Bus, Event
from eventbus.clock import SystemClock
from eventbus.cloudevents import STRUCTURED_JSON, to_json, to_kafka
from eventbus.errors import ConfigError, FatalError, RetriableError
from eventbus.names import BusName, Kind, SensorName, Stage
from eventbus.ports import Headers, Output, Record
from sensors.sensor import Sensor
from sensors.spark.archive import Archive
from tests.spark.logs import committed_records, places, play_retention, write_transactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sensors.spark.archiving import ArchivedTopic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]  # Spark takes its time where cores are few

Take = Callable[..., "list[ArchivedTopic]"]

_NEVER = threading.Event()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


@pytest.fixture
def take(spark: SparkSession, kafka_bus: Bus, archive: Archive) -> Take:
    """One run of the archiver."""
    from sensors.spark.archiving import BATCH_RECORDS, Archiver

    def run(
        *sensors: SensorName,
        batch_records: int = BATCH_RECORDS,
        accept_loss: bool = False,
        stopped: threading.Event = _NEVER,
        on_batch: Callable[[str, int], None] = lambda *_: None,
    ) -> list[ArchivedTopic]:
        archiver = Archiver(kafka_bus, archive, sensors, batch_records=batch_records, accept_loss=accept_loss)
        with archive.locked():
            archiver.run(spark, stopped, on_batch)
        return archiver.report()

    return run


def _archived(spark: SparkSession, archive: Archive, topic: str) -> list[Record]:
    from sensors.spark.history import as_python
    from sensors.spark.records import archived

    return as_python(topic, archived(spark, archive, topic).orderBy("partition", "offset").collect())


def _labels(spark: SparkSession, archive: Archive, topic: str) -> list[tuple[str | None, str | None]]:
    from sensors.spark.records import archived

    rows = archived(spark, archive, topic).orderBy("partition", "offset").collect()
    return [(row["source"], row["type"]) for row in rows]


def _comparable(records: list[Record]) -> list[tuple[object, ...]]:
    return sorted((r.partition, r.offset, r.timestamp, r.key, r.value, [*map(tuple, r.headers)]) for r in records)


def _write(bus: Bus, *contents: tuple[Headers, bytes | None]) -> None:
    topic = bus.name.event_topic
    fates = bus.write(Output(topic, 0, None, value, headers) for headers, value in contents)
    assert not any(isinstance(fate, Exception) for fate in fates)


def test_what_is_committed_is_archived_as_it_is_and_nothing_else(
    spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take
) -> None:
    kafka_bus.ensure(2)
    topic = kafka_bus.name.event_topic
    write_transactions(kafka_bus.bootstrap_servers, topic, partitions=2, rounds=12)
    [report] = take(batch_records=30)
    expected = committed_records(kafka_bus.cluster, topic)
    assert len(expected) == 30
    assert _comparable(_archived(spark, archive, topic)) == _comparable(expected)
    assert (report.topic, report.records) == (topic, 30)
    assert report.offsets == {0: (0, 36), 1: (0, 36)}
    assert archive.covered(topic) == {0: [(0, 36)], 1: [(0, 36)]}


def test_what_is_aborted_counts_as_archived(spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take) -> None:
    """A batch of nothing but aborted records and markers has no file, and still is one."""
    kafka_bus.ensure(1)
    topic = kafka_bus.name.event_topic
    write_transactions(kafka_bus.bootstrap_servers, topic, partitions=1, rounds=1)
    take()
    write_transactions(kafka_bus.bootstrap_servers, topic, partitions=1, rounds=1, first_aborted=True)
    [report] = take()
    assert report.records == 0
    assert archive.covered(topic) == {0: [(0, 12)]}
    assert len(_archived(spark, archive, topic)) == 5


def test_records_are_filed_by_day_source_and_type_even_where_these_are_odd(
    spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take
) -> None:
    kafka_bus.ensure(1)
    topic = kafka_bus.name.event_topic
    structured = [("Content-Type", f"{STRUCTURED_JSON}; charset=utf-8".encode())]
    long = "https://example.org/" + "x/" * 1000
    _write(
        kafka_bus,
        to_kafka(Event.new("shop", "n", {"n": 1}, type="order")),
        (structured, to_json(Event.new("17", "n", {"n": 1}, type="2026-01-01"))),
        to_kafka(Event.new(long, "n", type="ä" * 300)),
        to_kafka(Event.new("../../etc", "n", type="a=b/c:d%2F*?")),
        ([("ce_source", b"\xff"), ("ce_type", b"t")], b"rubbish"),
        (structured, b"{"),
        ([], None),
        ([("content-type", b"application/cloudevents-batch+json"), ("ce_source", b"s")], b"[]"),
    )
    take()
    expected = committed_records(kafka_bus.cluster, topic)
    assert _comparable(_archived(spark, archive, topic)) == _comparable(expected)
    assert _labels(spark, archive, topic) == [
        ("shop", "order"),
        ("17", "2026-01-01"),
        (long[:80], "_" * 80),
        ("../../etc", "a=b/c:d%2F*?"),
        (None, "t"),
        (None, None),
        (None, None),
        (None, None),
    ]
    folders = {file.relative_to(archive.records(topic)).parts for file in archive.records(topic).rglob("*.parquet")}
    days = {parts[0] for parts in folders}
    assert len(days) in {1, 2}  # midnight may pass
    assert all(day.startswith("date=20") and len(day) == len("date=2026-01-01") for day in days)
    assert {parts[1:3] for parts in folders} >= {
        ("source=shop", "type=order"),
        ("source=__HIVE_DEFAULT_PARTITION__", "type=__HIVE_DEFAULT_PARTITION__"),
    }


def test_a_run_adds_what_is_new(spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take) -> None:
    kafka_bus.ensure(2)
    topic = kafka_bus.name.event_topic
    assert [(each.records, each.files) for each in take()] == [(0, 0)]
    assert _archived(spark, archive, topic) == []
    kafka_bus.publish(*(Event.new("shop", "order", n) for n in range(10)))
    assert [each.records for each in take()] == [10]
    assert [each.records for each in take()] == [0]
    kafka_bus.publish(*(Event.new("shop", "order", n) for n in range(5)))
    [report] = take()
    assert report.records == 5
    assert places(_archived(spark, archive, topic)) == places(committed_records(kafka_bus.cluster, topic))
    assert report.files == len(list(archive.records(topic).rglob("*.parquet")))


def test_who_stops_it_gets_whole_batches_and_the_next_run_goes_on(
    spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take
) -> None:
    kafka_bus.ensure(1)
    topic = kafka_bus.name.event_topic
    kafka_bus.publish(*(Event.new("shop", "order", n) for n in range(200)))
    stopped = threading.Event()
    [report] = take(batch_records=5, stopped=stopped, on_batch=lambda *_: stopped.set())
    assert 0 < report.records < 200
    archived = places(_archived(spark, archive, topic))
    assert archived == [(0, offset) for offset in range(report.offsets[0][1])]
    assert len(archived) >= report.records  # one more may have been finished before it could be stopped
    take()
    assert places(_archived(spark, archive, topic)) == [(0, offset) for offset in range(200)]


def test_a_sensor_can_be_added_later_with_how_far_it_had_got(
    spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take
) -> None:
    from sensors.spark.history import Commits

    sensor = Sensor("orders", {"paid": ("shop", "paid"), "packed": ("shop", "packed")})
    sensor.trigger("ship", "paid && packed")(lambda call: None)
    kafka_bus.ensure(2)
    name = SensorName(kafka_bus.name, "orders")
    kafka_bus.publish(Event.new("shop", "early"))
    take()
    assert archive.commits(name) is None
    with sensor.start(kafka_bus) as replica:
        replica.wait_ready()
        for number in range(5):
            kafka_bus.publish(Event.new("shop", "paid", number), Event.new("shop", "packed", number))
        replica.settle()
    reports = {each.topic: each for each in take(name)}
    assert list(reports) == [
        name.event_topic,
        *(name.topic(kind) for kind in (Kind.TRIGGER, Kind.ACTION, Kind.INVOCATION, Kind.DLQ)),
    ]
    for topic in reports:
        expected = committed_records(kafka_bus.cluster, topic)
        assert _comparable(_archived(spark, archive, topic)) == _comparable(expected)
    assert reports[name.topic(Kind.ACTION)].records > 0
    assert set(_labels(spark, archive, name.topic(Kind.ACTION))) == {("orders", "action")}
    kept = archive.commits(name)
    assert kept is not None
    commits = Commits.decoded(kept)
    assert commits == Commits.of(kafka_bus, name)
    assert sum(commit.position for commit in commits.join.values()) > 0
    reach = archive.reach(name.topic(Kind.TRIGGER))
    assert reach is not None
    assert all(commit.position <= reach.ends[partition] for partition, commit in commits.join.items())


def test_archive_and_kafka_are_one_table(spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take) -> None:
    from sensors.spark.history import as_python
    from sensors.spark.records import Missing, Range, read_topic, slice_of

    kafka_bus.ensure(2)
    topic, servers = kafka_bus.name.event_topic, kafka_bus.bootstrap_servers
    write_transactions(servers, topic, partitions=2, rounds=8)
    take()
    write_transactions(servers, topic, partitions=2, rounds=4)
    expected = committed_records(kafka_bus.cluster, topic)
    # 0: in the middle of what is archived; 1: all that is archived, of which the last is a marker.
    play_retention(servers, topic, {0: 13, 1: 24})
    reader = kafka_bus.cluster.reader()
    wanted = slice_of(kafka_bus.cluster, reader, topic, Range())
    reader.close()
    _, both, missing = read_topic(spark, kafka_bus, wanted, Range(), archive)
    assert missing == []
    assert _comparable(as_python(topic, both.collect())) == _comparable(expected)
    _, kafka, missing = read_topic(spark, kafka_bus, wanted, Range(), None)
    assert missing == [Missing(topic, 0, 0, 13), Missing(topic, 1, 0, 24)]
    assert places(as_python(topic, kafka.collect())) == places(committed_records(kafka_bus.cluster, topic))
    assert len(expected) == 30


def test_what_was_removed_before_it_was_archived_is_named_and_can_be_accepted(
    spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take
) -> None:
    from sensors.spark.history import as_python
    from sensors.spark.records import Missing, Range, Slice, lost_to_retention, reaching_back, read_topic, slice_of

    kafka_bus.ensure(1)
    topic, servers = kafka_bus.name.event_topic, kafka_bus.bootstrap_servers
    kafka_bus.publish(*(Event.new("shop", "order", n) for n in range(10)))
    take()
    kafka_bus.publish(*(Event.new("shop", "order", n) for n in range(20)))
    play_retention(servers, topic, {0: 25})
    with pytest.raises(FatalError, match=r"\[0\]: the offsets 10 to 24 are gone\n.*--accept-loss"):
        take()
    assert len(_archived(spark, archive, topic)) == 10
    [report] = take(accept_loss=True)
    assert report.records == 5
    assert archive.covered(topic) == {0: [(0, 10), (25, 30)]}
    kafka_bus.publish(Event.new("shop", "order", "more"))
    take()  # what was accepted is not brought up again
    play_retention(servers, topic, {0: 31})

    def wanted_since(wanted: Range) -> Slice:
        reader = kafka_bus.cluster.reader()
        try:
            return slice_of(kafka_bus.cluster, reader, topic, wanted)
        finally:
            reader.close()

    wanted = wanted_since(Range())
    _, table, missing = read_topic(spark, kafka_bus, wanted, Range(), archive)
    assert missing == [Missing(topic, 0, 10, 25)]
    times = {record.offset: record.timestamp for record in _archived(spark, archive, topic)}
    in_the_gap = Range(since=times[9] + 1)  # the youngest that is known to be older is 9, the oldest to be younger 25
    found = reaching_back(spark, archive, wanted_since(in_the_gap), in_the_gap)
    assert lost_to_retention(found, archive.covered(topic)) == missing
    behind_it = Range(since=times[30])
    found = reaching_back(spark, archive, wanted_since(behind_it), behind_it)
    assert (found.offsets, lost_to_retention(found, archive.covered(topic))) == ({0: (30, 31)}, [])
    assert places(as_python(topic, table.collect())) == [(0, offset) for offset in [*range(10), *range(25, 31)]]


def test_a_time_before_all_that_kafka_has_is_looked_up_in_the_archive(
    spark: SparkSession, kafka_bus: Bus, archive: Archive, take: Take
) -> None:
    from sensors.spark.records import Range, lost_to_retention, reaching_back, slice_of

    kafka_bus.ensure(1)
    topic = kafka_bus.name.event_topic
    for number in range(6):
        kafka_bus.publish(Event.new("shop", "order", number))
    times = [record.timestamp for record in committed_records(kafka_bus.cluster, topic)]
    first = {moment: times.index(moment) for moment in times}  # two may be of the same millisecond
    take()
    play_retention(kafka_bus.bootstrap_servers, topic, {0: 5})
    reader = kafka_bus.cluster.reader()
    try:
        for since, until in ((times[2], None), (None, times[3]), (times[1], times[4]), (times[5] + 1, None)):
            wanted = Range(since, until)
            found = reaching_back(spark, archive, slice_of(kafka_bus.cluster, reader, topic, wanted), wanted)
            expected = (first.get(since, 6) if since else 0, first[until] if until else 6)
            assert found.offsets == {0: expected}
            assert lost_to_retention(found, archive.covered(topic)) == []
    finally:
        reader.close()


def test_without_an_archive_a_time_beyond_retention_is_not_taken_for_known(kafka_bus: Bus) -> None:
    from sensors.spark.records import Missing, Range, lost_to_retention, slice_of

    kafka_bus.ensure(1)
    topic = kafka_bus.name.event_topic
    kafka_bus.publish(*(Event.new("shop", "order", n) for n in range(6)))
    [*_, last] = committed_records(kafka_bus.cluster, topic)
    play_retention(kafka_bus.bootstrap_servers, topic, {0: 4})
    month, minute = 30 * 24 * 3_600_000, 60_000
    reader = kafka_bus.cluster.reader()
    try:
        long_ago = slice_of(kafka_bus.cluster, reader, topic, Range(last.timestamp - month))
        lately = slice_of(kafka_bus.cluster, reader, topic, Range(last.timestamp - minute))
    finally:
        reader.close()
    assert lost_to_retention(long_ago) == [Missing(topic, 0, 0, 4)]
    assert lost_to_retention(lately) == []


def test_a_topic_that_was_made_anew_is_refused(kafka_bus: Bus, archive: Archive, take: Take) -> None:
    kafka_bus.ensure(1)
    topic = kafka_bus.name.event_topic
    take()
    kafka_bus.cluster.delete([topic])
    kafka_bus.ensure(1)
    with pytest.raises(ConfigError, match=f"the topic `{topic}` was deleted and made anew"):
        take()


def test_an_archive_of_another_bus_is_refused_to_readers_too(kafka_bus: Bus, archive: Archive, take: Take) -> None:
    kafka_bus.ensure(1)
    take()
    with pytest.raises(ConfigError, match=rf"is the archive of the bus {kafka_bus.name.namespace}/default, not of a/b"):
        Archive.open(archive.directory, BusName("a", "b"))
    with pytest.raises(ConfigError, match="there is no archive here"):
        Archive.open(archive.directory / "else", kafka_bus.name)


def test_commits_are_kept_as_kafka_has_them(kafka_bus: Bus, archive: Archive, take: Take) -> None:
    """Those of a sensor that has never run are none, which is not the same as unknown."""
    from eventbus.topics import ensure_sensor_topics

    name = SensorName(kafka_bus.name, "idle")
    ensure_sensor_topics(kafka_bus.cluster, name, 1)
    stopped = threading.Event()
    stopped.set()
    take(name, stopped=stopped)
    assert archive.commits(name) is None  # it would speak of what is not archived
    take(name)
    assert archive.commits(name) == {Stage.MATCH: {}, Stage.JOIN: {}, Stage.INVOKE: {}}
    assert [file.name for file in (archive.directory / "commits").iterdir()] == ["idle.json"]
    kept = json.loads((archive.directory / "commits" / "idle.json").read_text())
    assert kept["taken"] > 0


def test_what_an_open_transaction_has_written_is_waited_for(kafka_bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit may be known already, while its marker has not reached this partition."""
    from sensors.spark import records

    monkeypatch.setattr(records, "_MARKER_SECONDS", 0.0)
    kafka_bus.ensure(1)
    topic = kafka_bus.name.event_topic
    producer = Producer({"bootstrap.servers": kafka_bus.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"", partition=0)
    producer.flush()
    reader = kafka_bus.cluster.reader()
    try:
        with pytest.raises(RetriableError, match=rf"{topic}\[0\]: a transaction is open"):
            records.await_markers(kafka_bus.cluster, reader, [topic], SystemClock())
        producer.commit_transaction()
        monkeypatch.undo()
        records.await_markers(kafka_bus.cluster, reader, [topic], SystemClock())
    finally:
        reader.close()
