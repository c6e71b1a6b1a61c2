"""Two readers of one topic must agree to the record: the check is shown what it must find."""

from __future__ import annotations

import pytest

from e2e.chaos.evidence import Fingerprint, fingerprint
from e2e.chaos.verdict import check_readers
from eventbus.ports import Record
from sensors.audit.violations import Breach

RECORDS = [Record("actions", number % 2, number, 0, b"k", b"%d" % number, [("h", b"v")]) for number in range(8)]
SEEN = [fingerprint(record) for record in RECORDS]


def test_readers_that_agree_are_believed() -> None:
    assert list(check_readers(RECORDS, SEEN)) == []


@pytest.mark.parametrize(
    ("seen", "breaches"),
    [
        (SEEN[:-1], [Breach.UNEXPLAINED]),
        ([*SEEN, (0, 99, 7)], [Breach.UNEXPLAINED]),
        ([*SEEN, SEEN[-1]], [Breach.OUT_OF_ORDER]),
        ([*SEEN[:5], SEEN[7], SEEN[5], SEEN[6]], [Breach.OUT_OF_ORDER]),
        ([*SEEN[:7], (1, 7, SEEN[7][2] + 1)], [Breach.UNEXPLAINED, Breach.UNEXPLAINED]),
    ],
    ids=["missed", "invented", "twice", "out of order", "other bytes"],
)
def test_readers_that_differ_are_found(seen: list[Fingerprint], breaches: list[Breach]) -> None:
    assert [violation.breach for violation in check_readers(RECORDS, seen)] == breaches
