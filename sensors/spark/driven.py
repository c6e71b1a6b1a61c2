"""What says that it was driven back from the dead letters."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from eventbus.names import Kind
from sensors.spark import facts
from sensors.spark.accounts import Accounts


def never_dead(accounts: Accounts) -> DataFrame:
    """Places of such trigger records that never were dead letters, or not as often as they are there.

    Whatever is driven back is what it was before, to the byte. Nobody is judged unless all of both are known.
    """
    history = accounts.history
    driven = facts.trigger_facts(history.tables[Kind.TRIGGER]).where("redriven AND readable")
    driven = driven.where(F.col("trigger").isin(list(accounts.names)))
    if not (history.complete(Kind.TRIGGER) and history.complete(Kind.DLQ)):
        driven = driven.limit(0)
    one_by_one = Window.partitionBy("content").orderBy("partition", "offset")
    driven = driven.selectExpr("partition", "offset", f"{facts.trigger_content()} AS content")
    driven = driven.withColumn("time", F.row_number().over(one_by_one))
    dead = accounts.letters.where("event_content IS NOT NULL").groupBy("event_content").count()
    met = driven.join(dead, F.col("content") == F.col("event_content"), "left")
    return met.where("time > coalesce(count, 0)").select("partition", "offset")
