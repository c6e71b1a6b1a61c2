"""What `dlqTrigger`s owe: an action for every time that another one was given up, and what it has to say."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventbus.hashing import dlq_action_id
from eventbus.names import Kind
from sensors.deadletters import ACTION_FAILED
from sensors.dlqactions import dlq_name
from sensors.spark.accounts import Accounts
from sensors.spark.entries import FAILURE, entries, number_of
from sensors.spark.workers import Batches, Rows

_SAID = (
    "partition, slot, generation, joined_partition, joined_offset, events, newest_event, content & 2147483647, "
    "startswith(key, CAST(concat(trigger, char(0)) AS binary)), substring(key, octet_length(trigger) + 2)"
)
"""What both actions say. The lower half of `content` is about the value alone; a key begins with the trigger's name."""
_PAIR = "partition int, offset bigint, made string, about string, misstated int"


def failures(accounts: Accounts) -> DataFrame:
    """An action that was given up, and the one that is due because of it; where the first of them is known."""
    due = [name for name, each in accounts.plan.triggers.items() if each.has_dlq_trigger]
    about = {"slot": "about"}
    number = {"trigger": number_of(accounts.names, "trigger")}
    given_up = accounts.letters.where(f"reason = '{ACTION_FAILED}' AND action IS NOT NULL")
    letters = given_up.where(F.col("trigger").isin(due)).selectExpr("action AS about", "trigger")
    finished = accounts.finished()
    made = accounts.actions.where("failure AND NOT redriven")
    made = made.selectExpr("failed_action AS about", "trigger", f"{finished} AS known")
    if due or accounts.others:  # else none of them can be in order
        # An action that was driven back has several records: all of its lives are known, or none is judged.
        own = f"coalesce(generation = {accounts.plan.owner.generation}, {'false' if accounts.others else 'true'})"
        lives = accounts.actions.selectExpr("action AS about", f"{finished} AS known", "NOT redriven AS first")
        lives = lives.unionByName(
            given_up.selectExpr("action AS about", f"{finished} AND {own} AS known", "false AS first")
        )
        whole = lives.groupBy("about").agg(F.expr("bool_and(known) AND bool_or(first)").alias("whole")).where("whole")
        letters, judged = (each.join(whole, "about", "left_semi") for each in (letters, made))
        if accounts.history.complete(Kind.ACTION):  # and what speaks of an action that never was
            judged = judged.unionByName(made.where("known").join(lives, "about", "left_anti"))
        made = judged
    owed = entries(letters, str(FAILURE), about=about, columns={"expected": "1", **number})
    return owed.unionByName(entries(made, str(FAILURE), about=about, columns={"found": "1", **number}))


def misstated(accounts: Accounts) -> DataFrame:
    """Places of such actions that say something else than what was given up, or have another name."""
    if not any(each.has_dlq_trigger for each in accounts.plan.triggers.values()):
        return accounts.actions.select("partition", "offset").limit(0)
    made = accounts.actions.where("failure").selectExpr(
        "failed_action AS about", "action AS made", "partition", "offset", f"xxhash64(trigger, {_SAID}) AS says"
    )
    due = f"xxhash64(concat(trigger, '{dlq_name('')}'), {_SAID})"
    given_up = accounts.actions.selectExpr("action AS about", f"{due} AS said")
    # What was given up may have been driven back, and may then be there several times.
    pairs = made.join(given_up, "about").groupBy("partition", "offset", "made", "about")
    judged = pairs.agg(F.expr("CAST(NOT bool_or(says = said) AS int)").alias("misstated"))
    return judged.mapInArrow(_named_wrongly, _PAIR).where("misstated > 0").select("partition", "offset")


def _named_wrongly(batches: Batches) -> Batches:
    for batch in batches:
        rows = Rows(_PAIR)
        for each in batch.to_pylist():
            wrong = each["misstated"] or int(each["made"] != dlq_action_id(each["about"]))
            rows.add(each["partition"], each["offset"], each["made"], each["about"], wrong)
        yield rows.batch()
