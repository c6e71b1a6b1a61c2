"""What stands in the wrong order: records of one lane that are there behind one that was due later."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from eventbus.names import Kind
from sensors.spark import facts
from sensors.spark.accounts import Accounts
from sensors.spark.entries import inside
from sensors.spark.history import EVENT


def disordered_actions(accounts: Accounts) -> DataFrame:
    """Actions of one trigger and key, `before_offset` being where the other one stands."""
    lane = "xxhash64(partition, key, origin_partition, joined_offset IS NULL)"  # keys are long
    return _disordered(accounts.actions.where("NOT redriven AND NOT failure"), lane, "origin_offset")


def disordered_trigger_records(accounts: Accounts) -> DataFrame:
    """Records of one partition of the trigger topic whose events are from one of the event topic."""
    history = accounts.history
    records = facts.trigger_facts(history.tables[Kind.TRIGGER]).where("NOT redriven AND readable")
    records = records.where(inside(history.known(Kind.TRIGGER), "partition", "offset"))
    records = records.where(f"NOT {history.impossible(EVENT, 'source_partition', 'source_offset')}")
    return _disordered(records, "xxhash64(partition, source_partition)", "source_offset")


def _disordered(records: DataFrame, lane: str, due: str) -> DataFrame:
    placed = records.selectExpr(f"{lane} AS lane", "partition", "offset", f"{due} AS due")
    in_log = Window.partitionBy("lane").orderBy("offset")
    before = F.lag("due").over(in_log).alias("before"), F.lag("offset").over(in_log).alias("before_offset")
    return placed.select("*", *before).where("before > due")
