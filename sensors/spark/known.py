"""Which part of a history can be judged, where retention has removed another, or another spec has been at work.

The topics lose their beginnings at different times. An event whose action is not there any more is not to be accused of
having none. Whatever one partition of an input causes in one partition of an output stands there in the same order: so
from the first on that is still known, all of it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventbus.names import Kind
from sensors.plan import SensorPlan
from sensors.spark.entries import inside
from sensors.spark.facts import action_facts, trigger_facts
from sensors.spark.history import CLOCKS_APART_MS, EVENT, History
from sensors.spark.records import ENDLESS


def with_floors(history: History, plan: SensorPlan) -> History:
    """The same history, which knows from where on its inputs can be judged."""
    floors: dict[str, dict[int, int]] = {}
    if cut := history.cut(Kind.TRIGGER):
        records = trigger_facts(history.tables[Kind.TRIGGER]).where("NOT redriven")
        records = records.where(inside(history.known(Kind.TRIGGER), "partition", "offset"))
        _raise(floors, history, EVENT, _firsts(records, cut, "source_partition", "source_offset"))
    if cut := history.cut(Kind.ACTION):
        actions = action_facts(history.tables[Kind.ACTION]).where("NOT redriven AND NOT failure")
        actions = actions.where(inside(history.known(Kind.ACTION), "partition", "offset"))
        direct = {trigger.direct for trigger in plan.triggers.values()}
        if True in direct:
            caused = actions.where("joined_offset IS NULL")
            _raise(floors, history, EVENT, _firsts(caused, cut, "origin_partition", "origin_offset"))
        if False in direct:
            caused = actions.where("joined_offset IS NOT NULL")
            _raise(floors, history, Kind.TRIGGER, _firsts(caused, cut, "origin_partition", "origin_offset"))
    return msgspec.structs.replace(history, floors=floors)


def with_ceilings(history: History, actions: DataFrame) -> History:
    """The same history, up to where a later generation of the spec may have taken over.

    When it took over from the join is not noted: up to the last action of the one in question it had not.
    """
    own = actions.where(f"generation = {history.generation} AND joined_offset IS NOT NULL AND NOT redriven")
    rows = own.groupBy("joined_partition").agg(F.max("joined_offset").alias("last")).collect()
    lasts = {row["joined_partition"]: row["last"] + 1 for row in rows}
    ceilings = {partition: lasts.get(partition, 0) for partition in history.slices[Kind.TRIGGER].offsets}
    return msgspec.structs.replace(history, ceilings={Kind.TRIGGER: ceilings})


def known_since(history: History, kind: Kind) -> int:
    """Of whatever was written since then, all is known that a topic says about it: invocations, or dead letters."""
    cut = history.cut(kind)
    if not cut:
        return 0
    remembers = history.slices[kind].remembers
    left = history.tables[kind].where(F.col("partition").isin(cut))
    left = left.where(inside(history.known(kind), "partition", "offset"))
    rows = left.groupBy("partition").agg(F.min("timestamp").alias("first")).collect()
    firsts: dict[int, int] = {row["partition"]: row["first"] for row in rows}
    return min(max(firsts.get(partition, remembers) for partition in cut) + CLOCKS_APART_MS, ENDLESS)


def with_letters(history: History, since: int) -> History:
    """The same history: of what came before the first dead letter that is left, the dead letters may be gone."""
    if not since:
        return history
    floors: dict[str, dict[int, int]] = {kind: dict(offsets) for kind, offsets in history.floors.items()}
    for kind in (EVENT, Kind.TRIGGER):
        later = history.tables[kind].where(F.col("timestamp") >= since).groupBy("partition")
        firsts = {row["partition"]: row["first"] for row in later.agg(F.min("offset").alias("first")).collect()}
        for partition, (start, end) in history.known(kind).items():
            floor = firsts.get(partition, end)
            if floor > start:
                raised = floors.setdefault(kind, {})
                raised[partition] = max(raised.get(partition, 0), floor)
    return msgspec.structs.replace(history, floors=floors)


def _firsts(caused: DataFrame, cut: list[int], partition: str, offset: str) -> list[Mapping[int, int]]:
    """By partition of the output that has lost its beginning: by partition of the input, its first record in there."""
    firsts: dict[int, dict[int, int]] = {each: {} for each in cut}
    rows = caused.where(F.col("partition").isin(cut)).groupBy("partition", partition).agg(F.min(offset).alias("first"))
    for row in rows.where("first IS NOT NULL").collect():
        firsts[row["partition"]][row[partition]] = row["first"]
    return list(firsts.values())


def _raise(floors: dict[str, dict[int, int]], history: History, kind: str, firsts: list[Mapping[int, int]]) -> None:
    """What one record causes may be cut, too: the next one is whole for sure. Where none is known, none is judged."""
    raised = floors.setdefault(kind, {})
    for partition, (_, end) in history.known(kind).items():
        whole = [first[partition] + 1 if partition in first else end for first in firsts]
        raised[partition] = max(raised.get(partition, 0), *whole)
