"""One topic of the past, as far as it is still known."""

from __future__ import annotations

import msgspec
from pyspark.sql import DataFrame, SparkSession

from eventbus.bus import Bus
from sensors.spark.archive import Archive
from sensors.spark.records import Missing, Range, comes_in_order, read_topic, slice_of


class Past(msgspec.Struct, frozen=True):
    """Its records (`records.RECORD`), and what of it nobody has any more."""

    records: DataFrame
    offsets: int
    """How many offsets that are. Where transactions wrote, a few of them are no records."""
    missing: list[Missing]
    in_order: bool
    """Whether each partition comes in the order of its offsets and in one task."""

    @classmethod
    def of(cls, spark: SparkSession, bus: Bus, topic: str, wanted: Range, archive: str | None = None) -> Past:
        reader = bus.cluster.reader()
        try:
            found = slice_of(bus.cluster, reader, topic, wanted)
        finally:
            reader.close()
        kept = None if archive is None else Archive.open(archive, bus.name)
        found, records, missing = read_topic(spark, bus, found, wanted, kept)
        asked_for = sum(end - start for start, end in found.offsets.values())
        in_order = kept is None and comes_in_order(spark, found)
        return cls(records, asked_for - sum(each.end - each.start for each in missing), missing, in_order)
