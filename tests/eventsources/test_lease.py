"""The rules of a lease, by example, by property, and in a simulation with every kind of trouble."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.errors import ConfigError
from eventsources.election.lease import DRIFT, Create, Get, Lease, Replace, Request, Timings, Wait
from eventsources.election.ports import Answer, Conflict, Gone, Record, Seen, Unreachable
from tests.eventsources.lease_mutants import MUTANTS
from tests.eventsources.lease_simulation import Server, World

OTHER = Record(holder="other", duration=15, transitions=7, acquired_ms=1, renewed_ms=2)
_BATCH = 20


class Desk:
    """One contender and a server that answers at once, at the times that a test says."""

    def __init__(self, identity: str = "me", server: Server | None = None, timings: Timings | None = None) -> None:
        self.lease = Lease(identity, timings or Timings())
        self.server = server or Server()

    def ask(self, now: float) -> Request | Wait:
        return self.lease.next(now, 1_700_000_000_000)

    def turn(self, now: float) -> list[Request]:
        """Everything that is asked for until the next wait, answered by the server."""
        asked = []
        while not isinstance(request := self.ask(now), Wait):
            asked.append(request)
            self.lease.answered(request, self.server.apply(request), now, now)
        return asked

    def answer(self, now: float, answer: Answer) -> Request:
        request = self.ask(now)
        assert not isinstance(request, Wait)
        self.lease.answered(request, answer, now, now)
        return request

    def written(self) -> Record:
        assert isinstance(self.server.state, Seen)
        return self.server.state.record


def held_by_other() -> Server:
    server = Server()
    server.apply(Create(OTHER))
    return server


# --- examples -------------------------------------------------------------------------------------------------------


def test_who_finds_no_lease_makes_one_and_leads() -> None:
    desk = Desk()
    assert [type(each) for each in desk.turn(100)] == [Get, Create]
    assert desk.written() == Record("me", 15, 1, 1_700_000_000_000, 1_700_000_000_000)
    assert desk.lease.term(100) == 1
    assert desk.lease.left(103) == 7


def test_the_leader_renews_with_a_single_write() -> None:
    desk = Desk()
    desk.turn(100)
    assert [type(each) for each in desk.turn(102)] == [Replace]
    assert desk.lease.term(111.9) == 1
    assert desk.lease.term(112) is None


def test_a_turn_ends_with_a_wait_until_the_next() -> None:
    desk = Desk()
    desk.turn(100)
    desk.answer(102, Unreachable("gone fishing"))
    assert desk.ask(107) == Wait(104)


def test_others_wait_until_they_have_seen_no_change_for_the_whole_lease() -> None:
    desk = Desk(server=held_by_other())
    assert [type(each) for each in desk.turn(1000)] == [Get]
    assert [type(each) for each in desk.turn(1014.9)] == [Get]
    assert [type(each) for each in desk.turn(1015)] == [Get, Replace]
    assert (desk.lease.term(1015), desk.written().holder) == (8, "me")


def test_the_longer_of_two_leases_is_waited_for() -> None:
    desk = Desk(server=held_by_other(), timings=Timings(30, 20, 2))
    desk.turn(1000)
    assert [type(each) for each in desk.turn(1029)] == [Get]


def test_who_leaves_makes_room_at_once() -> None:
    leader = Desk()
    leader.turn(100)
    follower = Desk("you", leader.server)
    follower.turn(100)
    leader.lease.resign()
    assert leader.lease.term(100) is None
    leader.turn(101)
    assert (leader.written().holder, leader.written().transitions) == ("", 1)
    follower.turn(102)
    assert follower.lease.term(102) == 2


def test_who_never_led_leaves_without_a_word() -> None:
    desk = Desk(server=held_by_other())
    desk.turn(100)
    desk.lease.resign()
    assert desk.turn(101) == []


def test_who_may_lead_without_knowing_it_makes_room_too() -> None:
    desk = Desk(server=Server())
    desk.answer(100, Gone())
    create = desk.ask(100)
    assert isinstance(create, Create)
    desk.server.apply(create)
    desk.lease.answered(create, Unreachable("the answer was lost"), 100, 105)
    assert desk.lease.term(105) is None
    desk.lease.resign()
    assert [type(each) for each in desk.turn(106)] == [Get, Replace]
    assert desk.written().holder == ""


def test_after_a_conflict_the_leader_looks_at_once_and_goes_on() -> None:
    """Somebody put a label on the object, or the answer to an earlier renewal got lost."""
    desk = Desk()
    desk.turn(100)
    assert isinstance(desk.answer(102, Conflict()), Replace)
    assert [type(each) for each in desk.turn(102)] == [Get, Replace]
    assert desk.lease.term(102) == 1


def test_a_conflict_is_no_renewal() -> None:
    """Nothing was written, so the others have seen no sign of life: the term ends when it would have ended."""
    desk = Desk()
    desk.turn(100)
    desk.answer(102, Conflict())
    desk.answer(102, Unreachable("no route"))
    assert desk.lease.term(109.9) == 1
    assert desk.lease.term(110) is None


def test_a_leader_that_finds_another_holder_stops() -> None:
    """Nobody can take it from a leader that keeps the rules, but somebody may have edited the object."""
    desk = Desk()
    desk.turn(100)
    desk.answer(102, Conflict())
    desk.answer(102, Seen(OTHER, "other"))
    assert desk.lease.term(102) is None
    assert isinstance(desk.ask(102), Wait)


def test_a_leader_whose_lease_was_deleted_stops_and_counts_on() -> None:
    desk = Desk()
    desk.turn(100)
    desk.server.state = Gone()
    desk.turn(102)
    assert desk.lease.term(102) is None
    assert [type(each) for each in desk.turn(116.9)] == [Get]
    assert [type(each) for each in desk.turn(117)] == [Get, Create]
    assert desk.lease.term(117) == 2


def test_a_late_answer_does_not_bring_a_lost_term_back() -> None:
    desk = Desk()
    desk.turn(100)
    renewal = desk.ask(109)
    assert isinstance(renewal, Replace)
    desk.lease.answered(renewal, desk.server.apply(renewal), 109, 110)
    assert desk.lease.term(110) is None
    desk.ask(110)
    desk.turn(112)
    assert desk.lease.term(112) == 2


def test_a_leader_that_hears_nothing_stops_in_time() -> None:
    desk = Desk()
    desk.turn(100)
    for now in range(102, 112, 2):
        assert desk.lease.term(now - 0.1) is not None
        desk.answer(now, Unreachable("no route"))
        desk.ask(now)
    assert desk.lease.term(110) is None


@pytest.mark.parametrize(
    ("timings", "message"),
    [
        (
            (10, 10, 2),
            r"^the lease \(10 s\) must be more than 2.0% longer than the renew deadline \(10 s\), because clocks",
        ),
        ((10, 9.9, 2), "longer than the renew deadline"),
        (
            (15, 2, 2),
            r"^the renew deadline \(2 s\) must be more than 1.2 times the retry period \(2 s\), and that more",
        ),
        ((15, 10, 0), "more than 0"),
    ],
)
def test_timings_that_cannot_work_are_refused(timings: tuple[int, float, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Timings(*timings)


# --- properties -----------------------------------------------------------------------------------------------------


class Silence(msgspec.Struct, frozen=True):
    """The holder falls silent after one renewal, which is sent at the true time 0.

    It is done after `request` and answered after `answer`. Another contender looks `look` after it was done, and does
    not miss the first moment at which it may take over.
    """

    timings: Timings
    request: float
    answer: float
    look: float
    holders_rate: float
    others_rate: float

    def without_leader(self) -> float:
        """For how long in true time."""
        holder, other = Lease("holder", self.timings), Lease("other", self.timings)
        record = Record("holder", self.timings.lease, 1, 1, 1)
        seen = Seen(record, "1")
        holder.answered(Create(record), seen, 0.0, (self.request + self.answer) * self.holders_rate)
        other.answered(Get(), seen, 0.0, (self.request + self.look) * self.others_rate)
        stops = holder.left(0.0) / self.holders_rate
        takes_over = (other._changed_at + other._patience) / self.others_rate
        return takes_over - stops


def tight(lease: int) -> Timings:
    deadline = 0.9999 * lease * (1 - DRIFT) / (1 + DRIFT)
    return Timings(lease, deadline, deadline / 10)


_delays = st.floats(0, 5)
_rates = st.floats(1 - DRIFT, 1 + DRIFT)


@given(st.builds(Silence, st.builds(tight, st.integers(1, 60)), _delays, _delays, _delays, _rates, _rates))
def test_the_holder_stops_before_anybody_can_take_over(silence: Silence) -> None:
    assert silence.without_leader() > 0


class Reckless(Timings, frozen=True):
    def __post_init__(self) -> None:
        """Checks nothing."""


def test_a_holder_that_leads_for_the_whole_lease_would_not() -> None:
    assert Silence(Reckless(15, 15, 2), 0, 0, 0, 1 - DRIFT, 1 + DRIFT).without_leader() < 0


@given(st.lists(st.sampled_from([Gone(), Conflict(), Unreachable(""), Seen(OTHER, "1"), Seen(OTHER, "2")])))
def test_nobody_leads_without_a_successful_write_of_its_own(answers: list[Answer]) -> None:
    desk, now = Desk(), 0.0
    for answer in answers:
        now += 1
        request = desk.ask(now)
        if isinstance(request, Wait):
            continue
        if isinstance(request, Get) or not isinstance(answer, Seen):
            desk.lease.answered(request, answer, now, now)
            assert desk.lease.term(now) is None


@given(st.lists(st.sampled_from([Conflict(), Unreachable("")]), max_size=20))
def test_nothing_but_a_successful_write_prolongs_a_term(answers: list[Answer]) -> None:
    desk, now = Desk(), 100.0
    desk.turn(now)
    for answer in answers:
        now += 0.5
        request = desk.ask(now)
        if isinstance(request, Get):
            desk.lease.answered(request, desk.server.apply(request), now, now)
        elif isinstance(request, Replace):
            desk.lease.answered(request, answer, now, now)
        assert desk.lease.left(now) <= 110 - now or desk.lease.left(now) == 0


@given(st.integers(0, 10**6))
def test_a_renewal_always_shows(standing_clock: int) -> None:
    """Also when the clock on the wall stands still: the server makes no new version of what is the same."""
    lease, server, versions = Lease("me", Timings()), Server(), set()
    for now in range(5):
        while not isinstance(request := lease.next(now, standing_clock), Wait):
            lease.answered(request, server.apply(request), now, now)
        assert isinstance(server.state, Seen)
        versions.add(server.state.version)
    assert len(versions) == 5


# --- simulation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 200, _BATCH))
def test_there_are_never_two_leaders_and_soon_there_is_one(first: int) -> None:
    terms = 0
    for seed in range(first, first + _BATCH):
        world = World(seed).run()
        assert world.violations == [], f"World({seed})"
        terms += len(world.terms)
    assert terms > 5 * _BATCH, "seeds in which nothing happens prove nothing"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(name: str) -> None:
    with MUTANTS[name]():
        assert any(World(seed).run().violations for seed in range(100))


def test_a_seed_is_a_whole_history() -> None:
    assert World(5).run().terms == World(5).run().terms
