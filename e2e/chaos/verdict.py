"""The verdict from four sides: the log, a concurrent reader, the invocation records, the sink's ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from e2e.chaos.evidence import Fingerprint, fingerprint
from eventbus.ports import Record
from sensors.audit.verdict import Evidence, Verdict, judge
from sensors.audit.violations import Breach, Violation, place


def verdict_on(evidence: Evidence, concurrent: Sequence[Fingerprint], complaints: Iterable[str]) -> Verdict:
    """`complaints` are what needs no judge: replicas that ended by themselves, work that was never done."""
    verdict = judge(evidence)
    violations = [
        *(Violation(invariant="I9", breach=Breach.UNEXPLAINED, what=complaint) for complaint in complaints),
        *check_readers(evidence.actions, concurrent),
        *verdict.violations,
    ]
    return msgspec.structs.replace(verdict, violations=violations)


def check_readers(dump: Sequence[Record], concurrent: Sequence[Fingerprint]) -> Iterator[Violation]:
    """Whoever reads all the time and whoever reads in the end must see the same, to the record and in order."""
    topic = dump[0].topic if dump else ""
    last: dict[int, int] = {}
    for partition, offset, _ in concurrent:
        if offset <= last.get(partition, -1):
            yield _about(topic, partition, offset, Breach.OUT_OF_ORDER, "seen after a later one, or twice")
        last[partition] = offset
    found, seen = set(map(fingerprint, dump)), set(concurrent)
    for partition, offset, _ in sorted(found - seen):
        yield _about(topic, partition, offset, Breach.UNEXPLAINED, "seen only in the end")
    for partition, offset, _ in sorted(seen - found):
        yield _about(topic, partition, offset, Breach.UNEXPLAINED, "not seen any more in the end")


def _about(topic: str, partition: int, offset: int, breach: Breach, what: str) -> Violation:
    return Violation(invariant="I1", breach=breach, what=f"a record was {what}", place=place(topic, partition, offset))
