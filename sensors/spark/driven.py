"""What says that it was driven back from the dead letters."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventbus.names import Kind
from sensors.spark import facts
from sensors.spark.accounts import Accounts

_EVENT = ("trigger", "slot", "partition", "offset")


def never_dead(accounts: Accounts) -> DataFrame:
    """Places of such trigger records that never were dead letters, where all of both are known."""
    history = accounts.history
    driven = facts.trigger_facts(history.tables[Kind.TRIGGER]).where("redriven").where(F.col("trigger").isNotNull())
    if not (history.complete(Kind.TRIGGER) and history.complete(Kind.DLQ)):
        driven = driven.limit(0)
    about = driven.where(F.col("trigger").isin(list(accounts.names))).selectExpr(
        "partition AS there",
        "offset AS at",
        "trigger",
        "slot",
        "source_partition AS partition",
        "source_offset AS offset",
    )
    dead = accounts.letters.where("event_trigger IS NOT NULL")
    dead = dead.selectExpr(*(f"event_{name} AS {name}" for name in _EVENT))
    return about.join(dead, list(_EVENT), "left_anti").selectExpr("there AS partition", "at AS offset")
