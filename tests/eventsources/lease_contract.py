"""What contenders in processes of their own promise. Run against our own server and, in `e2e`, a real API server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

import pytest

from tests.eventsources.relay import Relay, relayed

_TIMINGS = ("3", "2", "0.3")
_PATIENCE = 60
_START_SECONDS = 180
"""How long processes may take to start, which is not what is tried here."""


class Contender:
    """A process, and what it has said."""

    def __init__(self, kubeconfig: Path, namespace: str, news: threading.Condition) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.eventsources.contender", "calendar", namespace, *_TIMINGS],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = False
        self.moments: dict[int, tuple[float, float]] = {}
        """The first and the last moment of each term."""
        self.losses = 0
        self._news = news
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    @property
    def last_term(self) -> int:
        return max(self.moments, default=0)

    def signal(self, number: Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: Signals) -> None:
        self.signal(SIGCONT)
        self.signal(number)
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._hear(line.split())
                self._news.notify_all()

    def _hear(self, words: list[str]) -> None:
        match words:
            case ["ready"]:
                self.ready = True
            case ["lost"]:
                self.losses += 1
            case [moment, term]:
                first, _ = self.moments.get(int(term), (float(moment), 0.0))
                self.moments[int(term)] = (first, float(moment))


class Contest:
    """All contenders for one lease."""

    def __init__(self, number: int, kubeconfig: Path, namespace: str) -> None:
        self._news = threading.Condition()
        self.contenders = [Contender(kubeconfig, namespace, self._news) for _ in range(number)]
        try:
            self.wait_for(lambda: all(each.ready for each in self.contenders), "all to be ready", _START_SECONDS)
        except BaseException:
            self.end()  # nobody else knows of them
            raise

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = _PATIENCE) -> None:
        with self._news:
            assert self._news.wait_for(condition, seconds), f"waited {seconds} s for {what}"

    def leader_after(self, term: int) -> Contender:
        """Who leads in a later term, as soon as somebody does."""
        self.wait_for(lambda: self.last_term > term, f"a term after {term}")
        with self._news:
            return max(self.contenders, key=lambda each: each.last_term)

    @property
    def last_term(self) -> int:
        return max(each.last_term for each in self.contenders)

    def wait_for_loss(self, contender: Contender, losses: int) -> None:
        self.wait_for(lambda: contender.losses > losses, "the leader to say that it has lost it")

    def end(self) -> None:
        for each in self.contenders:
            each.end(SIGTERM)

    def check(self) -> None:
        """No two terms at the same time, no term twice, and each after all that have lower numbers."""
        terms = sorted((term, span) for each in self.contenders for term, span in each.moments.items())
        for (lower, (_, end)), (higher, (begin, _)) in pairwise(terms):
            assert lower < higher
            assert end < begin, f"terms {lower} and {higher} overlap by {end - begin:.3f} s"


class LeaseContract:
    """Needs fixtures `kubeconfig` and `namespace`; `number` is that of the contenders."""

    number: int

    @pytest.fixture
    def relay(self, kubeconfig: Path, tmp_path: Path) -> Iterator[Relay]:
        relay = relayed(kubeconfig, tmp_path / "relayed")
        yield relay
        relay.cut()

    @pytest.fixture
    def contest(self, relay: Relay, namespace: str, tmp_path: Path) -> Iterator[Contest]:
        contest = Contest(self.number, tmp_path / "relayed", namespace)
        try:
            yield contest
        finally:
            contest.end()
        contest.check()

    def test_another_takes_over_when_the_leader_is_killed(self, contest: Contest) -> None:
        leader = contest.leader_after(0)
        leader.end(SIGKILL)
        assert contest.leader_after(leader.last_term) is not leader

    def test_another_takes_over_when_the_leader_leaves(self, contest: Contest) -> None:
        leader = contest.leader_after(0)
        leader.end(SIGTERM)
        assert contest.leader_after(leader.last_term) is not leader
        assert leader.losses == 0

    def test_another_takes_over_when_the_leader_is_stopped_and_it_notices_when_it_goes_on(
        self, contest: Contest
    ) -> None:
        leader = contest.leader_after(0)
        losses, term = leader.losses, contest.last_term
        leader.signal(SIGSTOP)
        assert contest.leader_after(term) is not leader
        leader.signal(SIGCONT)
        contest.wait_for_loss(leader, losses)

    def test_nobody_leads_without_the_server_and_somebody_does_when_it_is_back(
        self, contest: Contest, relay: Relay
    ) -> None:
        leader = contest.leader_after(0)
        losses, term = leader.losses, contest.last_term
        relay.cut()
        contest.wait_for_loss(leader, losses)
        relay.mend()
        contest.leader_after(term)
