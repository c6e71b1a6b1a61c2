"""What our own records say, as columns: the formats of `eventbus.formats`, read by Spark SQL.

A record that cannot be read has nulls there, and is judged by those who can tell why.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventbus.formats import (
    ACTION_HEADER,
    DLQ_HEADER,
    FLUSH_HEADER,
    REDRIVE_MARK_HEADER,
    REDRIVEN_HEADER,
    STATE_HEADER,
    TRIGGER_HEADER,
)

_TRIGGER = "t string, d array<string>, e array<bigint>, s string, r string, k string"
_NEEDED = ("f.t", "f.d", "f.s", "f.e[0]", "f.e[1]", "f.e[2]")
_READABLE = f"{' AND '.join(f'{each} IS NOT NULL' for each in _NEEDED)} AS readable"
_ACTION = "id string, t string, e array<array<array<string>>>, g bigint, k string, j array<bigint>, f array<string>"
_INVOCATION = (
    "action string, trigger string, outcome string, mode string, partition int, offset bigint, "
    "started bigint, ended bigint"
)
_LETTER = (
    "reason string, stage string, topic string, partition int, offset bigint, timestamp bigint, replica string, "
    "trigger string, action string, generation bigint"
)


def header(name: str) -> str:
    """SQL: the first header of that name. Most records have one only, which saves a search: Spark is slow at those."""
    found = f"filter(headers, h -> h.key = '{name}')[0].value"
    return f"CASE WHEN headers[0].key = '{name}' THEN headers[0].value WHEN size(headers) > 1 THEN {found} END"


def has_header(name: str) -> str:
    found = f"exists(headers, h -> h.key = '{name}')"
    return f"coalesce(headers[0].key = '{name}' OR (size(headers) > 1 AND {found}), false)"


def _said(json: str, schema: str) -> str:
    """SQL: columns of a JSON document. What filters ask for of a mere projection, Spark would parse again for each."""
    return f"inline(array(from_json(CAST({json} AS string), '{schema}')))"


def _fingerprint(fact: str, partition: str = "partition") -> str:
    """SQL: `workers.fingerprint` of a record, without its writer, who is an `r` of the fact."""
    said = rf"""regexp_replace(CAST({fact} AS string), r',"r":"(?:[^"\\]|\\.)*"', '')"""
    rest = f"concat(CAST({said} AS binary), coalesce(key, X''), CAST(CAST({partition} AS string) AS binary))"
    return f"crc32(coalesce(value, X'')) ^ shiftleft(crc32({rest}), 31)"


def trigger_content() -> str:
    """SQL, of `trigger_facts`: all that a record says, but for its writer."""
    return _fingerprint("fact")


def trigger_facts(records: DataFrame) -> DataFrame:
    """Records of the trigger topic. `source_…` is where the event stands in the event topic.

    `readable`: as far as Spark can tell, the core can read the fact.
    """
    facts = records.selectExpr(
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        f"{header(TRIGGER_HEADER)} AS fact",
        f"{header(FLUSH_HEADER)} AS flush",
        f"{has_header(REDRIVEN_HEADER)} AS redriven",
    ).selectExpr("*", f"from_json(CAST(fact AS string), '{_TRIGGER}') AS f")
    return facts.selectExpr(
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "fact",
        "flush",
        "redriven",
        _READABLE,
        "f.t AS trigger",
        "coalesce(f.k, '') AS slot",
        "f.s AS shape",
        "f.r AS replica",
        "CAST(f.e[0] AS int) AS source_partition",
        "f.e[1] AS source_offset",
        "f.e[2] AS source_timestamp",
    )


def action_facts(records: DataFrame) -> DataFrame:
    """Records of the action topic.

    What is not one of ours has no `action`. `joined_…` is the record of the trigger topic that completed it; null where
    one event was enough. `origin_…` is that, or else the event: what its order is judged by.
    """
    facts = records.selectExpr(
        "partition",
        "offset",
        "timestamp",
        "key",
        f"{_fingerprint(header(ACTION_HEADER))} AS content",
        f"{has_header(REDRIVEN_HEADER)} AS redriven",
        _said(header(ACTION_HEADER), _ACTION),
    )
    return facts.selectExpr(
        "partition",
        "offset",
        "timestamp",
        "key",
        "content",
        "redriven",
        "CASE WHEN t IS NOT NULL AND e IS NOT NULL AND g IS NOT NULL THEN id END AS action",
        "t AS trigger",
        "coalesce(k, '') AS slot",
        "g AS generation",
        "f IS NOT NULL AS failure",
        "f[0] AS failed_action",
        "CAST(j[0] AS int) AS joined_partition",
        "j[1] AS joined_offset",
        "coalesce(CAST(j[0] AS int), CAST(e[0][1][0] AS int)) AS origin_partition",
        "coalesce(j[1], CAST(e[0][1][1] AS bigint)) AS origin_offset",
        "transform(e, e -> struct(CAST(e[1][0] AS int) AS partition, CAST(e[1][1] AS bigint) AS offset)) AS events",
        "array_max(transform(e, e -> CAST(e[1][2] AS bigint))) AS newest_event",
    )


def invocation_facts(records: DataFrame) -> DataFrame:
    """Records of the invocation topic; `note_…` is where they stand themselves."""
    return records.selectExpr("partition AS note_partition", "offset AS note_offset", _said("value", _INVOCATION))


def letter_facts(records: DataFrame) -> DataFrame:
    """Records of the dead-letter topic; `event_…` is the event that a held one was, where it was one.

    `action_within` is the action that it was, and `failed_within` the one that this was the `dlqTrigger`'s action of.
    `event_content` is all that a trigger record says that is driven back from here.
    """
    facts = records.where(f"{has_header(DLQ_HEADER)} OR NOT {has_header(REDRIVE_MARK_HEADER)}").selectExpr(
        "partition AS letter_partition",
        "offset AS letter_offset",
        f"from_json(CAST({header(DLQ_HEADER)} AS string), '{_LETTER}') AS f",
        f"from_json(CAST({header(TRIGGER_HEADER)} AS string), '{_TRIGGER}') AS h",
        f"from_json(CAST({header(ACTION_HEADER)} AS string), 'id string, f array<string>') AS a",
        "timestamp AS letter_timestamp",
        "key",
        "value",
        f"{header(TRIGGER_HEADER)} AS event_fact",
    )
    return facts.selectExpr(
        "letter_partition",
        "letter_offset",
        "letter_timestamp",
        "f.*",
        "a.id AS action_within",
        "a.f[0] AS failed_within",
        f"CASE WHEN event_fact IS NOT NULL THEN {_fingerprint('event_fact', 'f.partition')} END AS event_content",
        "h.t AS event_trigger",
        "coalesce(h.k, '') AS event_slot",
        "CAST(h.e[0] AS int) AS event_partition",
        "h.e[1] AS event_offset",
    )


def held_facts(records: DataFrame) -> DataFrame:
    """Events that stateful triggers hold, by the latest records of the state topic."""
    written = records.where("CAST(key AS string) LIKE '[\"held\",%'")
    latest = written.groupBy("key").agg(F.max_by(F.struct("value", "headers"), "offset").alias("last"))
    held = latest.where("last.value IS NOT NULL").selectExpr("key", "last.headers AS headers")
    facts = held.selectExpr(
        "from_json(CAST(key AS string), 'array<string>') AS k",
        f"from_json(CAST({header(STATE_HEADER)} AS string), 'e array<bigint>') AS f",
    )
    return facts.selectExpr("k[1] AS trigger", "k[2] AS slot", "CAST(f.e[0] AS int) AS partition", "f.e[1] AS offset")
