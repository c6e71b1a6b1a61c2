"""Several partitions as one stream, and the copies that a replay makes of it."""

from __future__ import annotations

from eventbus.clock import ManualClock, SystemClock
from eventbus.cloudevents import from_kafka, to_json
from eventbus.events import Event
from eventbus.memory import MemoryCluster
from eventbus.names import BusName, SensorName
from eventbus.ports import Output, Record, TopicSpec
from sensors.reading import in_order_of_time, newest, ranges_between
from sensors.replay import Past, Rehearsal, copy_for, rehearse
from tests.core.builders import event_record
from tests.core.test_diagnosis import NOW, make_plan

TOPIC = "events"


class Log:
    """A topic in memory whose clock moves, and can go back, as that of a new leader may."""

    def __init__(self, partitions: int) -> None:
        self.clock = ManualClock(1000)
        self.cluster = MemoryCluster(self.clock)
        self.cluster.create([TopicSpec(TOPIC, partitions, {"message.timestamp.type": "LogAppendTime"})])
        self.reader = self.cluster.reader()

    def write(self, partition: int, value: bytes, timestamp: int) -> None:
        self.clock.advance((timestamp - self.clock.now_ms()) / 1000)
        publisher = self.cluster.publisher()
        publisher.send(Output(TOPIC, partition, None, value), lambda *_: None)
        assert publisher.flush(1) == 0

    def stream(self, since: int | None = None, until: int | None = None) -> list[tuple[bytes | None, int]]:
        ranges = ranges_between(self.reader, self.cluster, TOPIC, since, until)
        timed = in_order_of_time(self.reader, TOPIC, ranges, SystemClock())
        return [(each.record.value, each.moment) for each in timed]


def test_partitions_are_merged_by_time_and_each_keeps_its_order() -> None:
    log = Log(3)
    for number, partition in enumerate((0, 2, 1, 1, 0, 2)):
        log.write(partition, b"%d" % number, 1000 + number)
    assert [value for value, _ in log.stream()] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [value for value, _ in log.stream(since=1001, until=1005)] == [b"1", b"2", b"3", b"4"]


def test_a_clock_that_goes_back_loses_nothing_to_who_resumes() -> None:
    log = Log(2)
    for partition, value, timestamp in ((0, b"a", 1010), (0, b"late", 1005), (1, b"b", 1007), (1, b"c", 1011)):
        log.write(partition, value, timestamp)
    everything = log.stream()
    assert everything == [(b"b", 1007), (b"a", 1010), (b"late", 1010), (b"c", 1011)]
    for number, (_, moment) in enumerate(everything):
        again = {value for value, _ in log.stream(since=moment)}
        assert {value for value, _ in everything[number:]} <= again


def test_only_so_many_of_each_partition() -> None:
    assert newest({0: range(3, 10), 1: range(2), 2: range(5, 5)}, 3) == {
        0: range(7, 10),
        1: range(2),
        2: range(5, 5),
    }


def test_a_copy_keeps_everything_whatever_mode_it_came_in() -> None:
    event = Event.new("shop", "paid", {"order": 1}, id="e", time="2020-01-01T00:00:00Z")
    headers = [("content-type", b"application/cloudevents+json"), ("traceparent", b"00-x")]
    record = Record(TOPIC, 3, 17, 5, b"theirs", to_json(event), headers)
    copy = copy_for(SensorName(BusName("ns"), "orders"), Past(record, event, 5, ["paid"]))
    assert (copy.topic, copy.partition, copy.key) == (TOPIC, 3, b"theirs")
    assert ("traceparent", b"00-x") in copy.headers
    marks = {"replayfor": "ns/default/orders", "replayof": "3:17"}
    assert from_kafka(copy.headers, copy.value) == Event({**event.attributes, **marks}, event.data)


def test_a_rehearsal_counts_what_is_asked_for_filtered_and_fired() -> None:
    plan = make_plan()
    events = [
        Event.new("shop", "paid", id="1"),
        Event.new("store", "packed", {"weight": 99}, id="2"),
        Event.new("store", "packed", {"weight": 1}, id="3"),
        Event.new("store", "packed", {"weight": 1}, id="4"),
    ]
    past = [Past(event_record(event, offset=n), event, 0, ["a" if n == 0 else "b"]) for n, event in enumerate(events)]
    rehearsal = rehearse(plan, past, NOW)
    assert rehearsal == Rehearsal(4, {"a": 1, "b": 3}, {"b": 1}, {"t": 1})
    assert rehearse(plan, [], NOW).fired == {"t": 0}
