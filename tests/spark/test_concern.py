"""Spark passes over an event only where the sensor's own core would have done so, too."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from eventbus.cloudevents import to_kafka
from eventbus.events import REPLAY_FOR, Event
from eventbus.ports import Record
from sensors.match import Matcher
from sensors.spark.concern import concerns_nobody
from tests.spark.rows import BUS, deputy, manifest, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENSOR = deputy(
    manifest({"t": {"conditions": "a || b"}}, {"b": {"eventSourceName": "it's \\ quoted", "eventName": "b 'n' \\c"}})
)
Headers = list[tuple[str, bytes | None]]


def _headers(source: str = "shop", name: str = "viewed", **extensions: str) -> Headers:
    return [*to_kafka(Event.new(source, name, {"n": 1}, id="1", **extensions))[0]]


def _other(header: str, value: bytes | None) -> Headers:
    """One header of an event that concerns nobody has another value, or is new."""
    return [*((name, was) for name, was in _headers() if name != header), (header, value)]


def _without(header: str) -> Headers:
    return [(name, value) for name, value in _headers() if name != header]


PASSED_OVER = {
    "another name": _headers(),
    "another source": _headers("bank", "a"),
    "no name": _without("ce_subject"),
    "an old version": _other("ce_specversion", b"0.3"),
    "extensions": _headers(partitionkey="1", myown="2"),
    "text": _other("content-type", "text/plain; charset=ütf".encode()),
    "no content type": _without("content-type"),
    "what Kafka's instrumentation adds": [*_headers(), ("traceparent", b"00-1")],
    "a copy for another sensor": _headers(**{REPLAY_FOR: "default/other"}),
}
LOOKED_AT = {
    "asked for": _headers("shop", "a"),
    "asked for by type": [("ce_type", b"a"), *(each for each in _without("ce_type") if each[0] != "ce_subject")],
    "asked for, with quotes": _headers("it's \\ quoted", "b 'n' \\c"),
    "a header that nobody needs is not UTF-8": [*_headers(), ("traceparent", b"\xff")],
    "structured, in capitals": [*_without("content-type"), ("CONTENT-TYPE", b"Application/CloudEvents+json")],
    "structured, and said twice": [*_headers(), ("ce_datacontenttype", b"application/cloudevents")],
    "no headers": [],
    **{f"no {name}": _without(f"ce_{name}") for name in ("id", "source", "type", "specversion")},
    **{f"empty {name}": _other(f"ce_{name}", b"") for name in ("id", "source", "type", "specversion")},
    **{f"{name} is null": _other(name, None) for name in ("ce_id", "ce_subject", "content-type", "ce_own")},
    **{f"a header called {name!r}": _other(name, b"1") for name in ("ce_", "ce_data", "ce_Own", "ce_own\n", "ce_ö")},
    **{
        f"{raw!r} is not UTF-8": _other("ce_subject", raw)
        for raw in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")
    },
    "half a letter at an end, the rest at the next beginning": [*_other("ce_own", b"\xc3"), ("ce_then", b"\xbc")],
    "structured": [*_without("content-type"), ("content-type", b"application/cloudevents+json; charset=utf-8")],
    "structured, with other letters": _other("content-type", b"APPLICATION/cloudevents-batch+json"),
    "the last of two counts": [*_headers(), ("ce_subject", b"a")],
    "the first of two does not": [("ce_id", b""), *_headers()],
}


def _passed_over(spark: SparkSession, records: list[Record]) -> set[int]:
    """The offsets of what Spark passes over."""
    rows: DataFrame = table(spark, records).where(concerns_nobody(SENSOR.plan)).select("offset")
    return {row["offset"] for row in rows.collect()}


def _record(headers: Headers, offset: int) -> Record:
    return Record(BUS.event_topic, 0, offset, offset, None, b'{"n":1}', headers)


def test_what_is_sound_and_asked_for_by_nobody_is_passed_over(spark: SparkSession) -> None:
    cases = {**PASSED_OVER, **LOOKED_AT}
    found = _passed_over(spark, [_record(headers, offset) for offset, headers in enumerate(cases.values())])
    assert {name for offset, name in enumerate(cases) if offset in found} == PASSED_OVER.keys()


@pytest.mark.parametrize("seed", range(3))
def test_of_what_is_passed_over_nothing_comes(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    records = [_record(_garbled(random), offset) for offset in range(3000)]
    found = _passed_over(spark, records)
    matcher = Matcher(SENSOR.plan, SENSOR.topology, "")
    assert 300 < len(found) < 2700
    assert [record for record in records if record.offset in found and matcher.outputs(record)] == []


def _garbled(random: Random) -> Headers:
    headers = _headers(random.choice(["shop", "bank"]), random.choice(["a", "b", "viewed"]))
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        place = random.randrange(len(headers) + 1)
        name, value = random.choice(headers) if headers else ("ce_id", b"1")
        match random.randrange(5):
            case 0:
                headers = [each for each in headers if each[0] != name]
            case 1:
                headers.insert(place, (name, random.choice([b"", b"a", b"shop", b"0.3", value])))
            case 2:
                headers.insert(place, (_garbled_name(random, name), value))
            case 3:
                headers.insert(place, (name, random.randbytes(2)))
            case _:
                random.shuffle(headers)
    return headers


def _garbled_name(random: Random, name: str) -> str:
    place = random.randrange(len(name) + 1)
    return random.choice([name.upper(), name[:place] + random.choice("_A \nö0") + name[place:], name[place:] or "x"])
