"""Names and numbers in protocol.md are those of the code."""

from __future__ import annotations

import re

from docs.diagram import NAME
from eventbus import metadata
from eventbus.metadata import InvokeCommit, JoinCommit, Mark, Owner, encode_invoke, encode_join, encode_match
from eventbus.topics import event_topic, sensor_topics
from sensors import Settings, deadletters, invoke, outcomes
from sensors.join import HORIZON_MS, HORIZON_RECORDS
from sensors.retry import TOTAL_SECONDS
from sensors.runner import loop
from tests.docs.pages import ROOT

TEXT = " ".join((ROOT / "docs/protocol.md").read_text().split())


def _listed(after: str, until: str) -> set[str]:
    """The names in one sentence, without what is said about them in parentheses."""
    [sentence] = re.findall(rf"{after}(.*?){until}", TEXT)
    return set(re.findall(r"`([a-z-]+)`", re.sub(r"\([^)]*\)", "", sentence)))


def test_outcomes_and_reasons_are_complete() -> None:
    from_code = (outcomes.TAKEN, outcomes.RELEASED, outcomes.LOST, outcomes.SUCCEEDED, outcomes.FAILED)
    assert _listed("Outcomes of an invocation:", r"\. ") == {*from_code, outcomes.DEAD_LETTERED}
    constants = {name: value for name, value in vars(deadletters).items() if isinstance(value, str) and name.isupper()}
    reasons = {value for name, value in constants.items() if not name.endswith("_HEADER")}
    assert _listed("Reasons of a dead letter:", r"\. ") == reasons


def test_numbers_are_those_of_the_code() -> None:
    minutes, hours = TOTAL_SECONDS / 60, HORIZON_MS / 3_600_000
    assert f"more than {HORIZON_RECORDS:,} records or one hour" in TEXT
    assert hours == 1
    assert f"{minutes:g} minutes after its first attempt" in TEXT
    assert f"{invoke.CONCURRENCY} actions at a time by default" in TEXT
    assert f"takes up to {invoke._AHEAD_PER_LANE} actions ahead" in TEXT
    assert f"at most {loop._FIRST_BATCH} records, up to {loop.MAX_BATCH:,} under load" in TEXT
    assert f"(up to {Settings().drain_seconds:g} s by default)" in TEXT
    assert f"at most {metadata.LIMIT:,} characters" in TEXT


def test_the_formats_of_metadata_are_those_of_the_code() -> None:
    owner = Owner(3, "DIGEST--")
    join = JoinCommit(owner, 9, 1700, {"trigge": Mark("shap", 5), "second": Mark("shap", 7)})
    commit = InvokeCommit(owner, 5, [(7, 8), (9, 11)])
    written = {"m1": encode_match(owner), "j1": encode_join(join), "i1": encode_invoke(commit)}
    assert written["j1"] == "j1;3;DIGEST--;9;1700;triggeshap0,secondshap2"
    assert written["i1"] == "i1;3;DIGEST--;2.1.1.2"
    documented = dict(re.findall(r"(m1|j1|i1);GENERATION;DIGEST(\S*)", TEXT))
    assert {name: text.count(";") for name, text in written.items()} == {
        name: 2 + fields.count(";") for name, fields in documented.items()
    }


def test_the_retention_of_topics_is_that_of_the_code() -> None:
    kept = {spec.config.get("retention.ms") for spec in (event_topic(NAME.bus, 1), *sensor_topics(NAME, 1)[:2])}
    assert kept == {str(7 * 86_400_000)}
    assert "before its topics' retention (7 days) has passed" in TEXT
