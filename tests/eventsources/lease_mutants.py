"""Planted mistakes about leases, each of which the simulation has to catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec

from eventsources.election.lease import Create, Lease, Replace, Request, _Reign
from eventsources.election.ports import Answer, Conflict, Gone, Seen, Unreachable

MUTANTS: dict[str, Callable[[], Any]] = {}
_answered, _next, _observe = Lease.answered, Lease.next, Lease._observe
_resign, _acquire = Lease.resign, Lease._acquire


def mutant(method: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated function takes the place of this method."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        MUTANTS[function.__name__.replace("_", " ")] = lambda: patch.object(Lease, method, function)
        return function

    return register


@mutant("answered")
def the_deadline_counts_from_the_answer(
    lease: Lease, request: Request, answer: Answer, sent: float, now: float
) -> None:
    _answered(lease, request, answer, now, now)


@mutant("answered")
def a_change_is_dated_back_to_the_request(
    lease: Lease, request: Request, answer: Answer, sent: float, now: float
) -> None:
    _answered(lease, request, answer, sent, sent)


@mutant("next")
def renewals_are_judged_by_our_own_wall_clock(lease: Lease, now: float, now_ms: int) -> Any:
    seen = lease._observed
    if isinstance(seen, Seen) and now_ms >= seen.record.renewed_ms + seen.record.duration * 1000:
        lease._changed_at = -1e9
    return _next(lease, now, now_ms)


@mutant("answered")
def an_unanswered_write_counts_as_done(lease: Lease, request: Request, answer: Answer, sent: float, now: float) -> None:
    _answered(lease, request, answer, sent, now)
    if isinstance(answer, Unreachable) and isinstance(request, Create | Replace) and not lease._resigned:
        lease._reign = _Reign(request.record.transitions, sent + lease._timings.renew_deadline)


@mutant("answered")
def a_conflict_counts_as_a_renewal(lease: Lease, request: Request, answer: Answer, sent: float, now: float) -> None:
    term = lease.term(now)
    _answered(lease, request, answer, sent, now)
    if isinstance(answer, Conflict) and term is not None:
        lease._reign = _Reign(term, sent + lease._timings.renew_deadline)


@mutant("_observe")
def every_look_counts_as_a_sign_of_life(lease: Lease, found: Seen | Gone, now: float) -> None:
    _observe(lease, found, now)
    lease._changed_at = now


@mutant("_observe")
def the_first_look_is_no_sign_of_life(lease: Lease, found: Seen | Gone, now: float) -> None:
    first = lease._observed is None
    _observe(lease, found, now)
    if first:
        lease._changed_at = -1e9


@mutant("_observe")
def a_vanished_record_is_free_at_once(lease: Lease, found: Seen | Gone, now: float) -> None:
    _observe(lease, found, now)
    if isinstance(found, Gone):
        lease._changed_at = -1e9


@mutant("_observe")
def a_vanished_record_resets_the_count(lease: Lease, found: Seen | Gone, now: float) -> None:
    _observe(lease, found, now)
    if isinstance(found, Gone):
        lease._last_term = 0


@mutant("_observe")
def a_change_is_told_by_the_time_it_states(lease: Lease, found: Seen | Gone, now: float) -> None:
    before, since = lease._observed, lease._changed_at
    _observe(lease, found, now)
    if isinstance(before, Seen) and isinstance(found, Seen) and found.record.renewed_ms <= before.record.renewed_ms:
        lease._changed_at = since


@mutant("_observe")
def only_our_own_duration_counts(lease: Lease, found: Seen | Gone, now: float) -> None:
    _observe(lease, found, now)
    lease._patience = lease._timings.lease


@mutant("_acquire")
def terms_are_not_counted(lease: Lease, now_ms: int) -> Request:
    lease._last_term -= 1
    request = _acquire(lease, now_ms)
    lease._last_term += 1
    return request


@mutant("_replace")
def a_renewal_may_change_nothing(lease: Lease, observed: Seen, record: Any, now_ms: int) -> Replace:
    return Replace(msgspec.structs.replace(record, renewed_ms=now_ms), observed.version)


@mutant("resign")
def who_leaves_still_leads_until_it_has_told(lease: Lease) -> None:
    reign = lease._reign
    _resign(lease)
    lease._reign = reign
