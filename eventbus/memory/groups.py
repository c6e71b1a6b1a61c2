"""Consumer groups: members, generations, cooperative rebalancing, committed offsets.

Theory of operation. Every change of membership computes a target for each member: balanced, and as close as can be
to what members own. A member learns of it in its own poll. There it first gives up what it owns beyond its target,
and only then may another member take it. A member that has not polled for the session timeout is expelled: what it
owned is free at once, and it finds out by its next poll. Each step that moves ownership starts a new generation.

A commit is checked for its generation, not for ownership: Kafka does not check that either.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from eventbus.errors import AbortableError, RetriableError
from eventbus.ports import Commit, Committed

# Kafka's offset.metadata.max.bytes, less the NUL that librdkafka appends.
MAX_METADATA_BYTES = 4095


class Membership(msgspec.Struct, frozen=True):
    """What a member shows with its commits."""

    group: str
    generation: int


class Member:
    """One consumer, as the group sees it."""

    def __init__(self, id: int, now: float) -> None:
        self.id = id
        self.last_poll = now
        self.owned: set[int] = set()
        self.target: set[int] = set()


class Group:
    """A consumer group that reads one topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.members: dict[int, Member] = {}
        self._next_id = 0
        self._partitions = 0
        self._committed: dict[tuple[str, int], Committed] = {}
        self._pending: dict[int, dict[tuple[str, int], Committed]] = {}

    def join(self, now: float, partitions: int) -> Member:
        self._partitions = partitions
        member = Member(self._next_id, now)
        self._next_id += 1
        self.members[member.id] = member
        self._rebalance()
        return member

    def resize(self, partitions: int) -> None:
        if partitions != self._partitions:
            self._partitions = partitions
            self._rebalance()

    def leave(self, member: Member) -> None:
        if self.members.pop(member.id, None) is not None:
            self._rebalance()

    def expire(self, now: float, timeout: float) -> None:
        silent = [member for member in self.members.values() if now - member.last_poll >= timeout]
        for member in silent:
            self.leave(member)

    def settled(self, member: Member, partitions: int) -> bool:
        """Whether a poll of this member would change nothing."""
        return member.id in self.members and partitions == self._partitions and member.owned == member.target

    def surplus(self, member: Member) -> list[int]:
        """What the member has to give up before others can take it."""
        return sorted(member.owned - member.target)

    def release(self, member: Member, partitions: Iterable[int]) -> None:
        member.owned.difference_update(partitions)
        self.generation += 1

    def take(self, member: Member) -> list[int]:
        """Give the member what is meant for it and owned by nobody."""
        if member.id not in self.members:
            return []
        owned = {partition for other in self.members.values() for partition in other.owned}
        taken = sorted(member.target - owned)
        member.owned.update(taken)
        return taken

    def membership(self, member: Member) -> Membership:
        if member.id not in self.members:
            raise AbortableError(f"this process is not a member of group {self.name} at the moment")
        return Membership(self.name, self.generation)

    def stage(self, producer: int, topic: str, commits: Iterable[Commit], membership: Membership) -> None:
        """Keep offsets until the producer's transaction ends."""
        # Whenever a member leaves or is expelled a new generation begins, so nobody else needs to be fenced.
        if membership.generation != self.generation:
            raise AbortableError(f"group {self.name} has moved on: this member's generation is over")
        staged = {}
        for commit in commits:
            if len(commit.metadata.encode()) > MAX_METADATA_BYTES:
                raise AbortableError(f"the offset metadata of {topic}/{commit.partition} is too large")
            staged[topic, commit.partition] = Committed(commit.offset, commit.metadata)
        self._pending.setdefault(producer, {}).update(staged)

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """The marker for this group's offsets."""
        staged = self._pending.pop(producer, {})
        if commit:
            self._committed.update(staged)

    def forget(self, topic: str) -> None:
        """The topic is deleted, and its offsets with it: in another one of that name they would mean nothing."""
        for offsets in (self._committed, *self._pending.values()):
            for place in [place for place in offsets if place[0] == topic]:
                del offsets[place]

    def committed(self, topic: str, partitions: Iterable[int]) -> dict[int, Committed | None]:
        wanted = [(topic, partition) for partition in partitions]
        for staged in self._pending.values():
            if not staged.keys().isdisjoint(wanted):
                raise RetriableError(f"a transaction that commits offsets of group {self.name} is still open")
        return {partition: self._committed.get((topic, partition)) for topic, partition in wanted}

    def _rebalance(self) -> None:
        """Those who own most keep one more where the partitions do not divide evenly: fewest moves."""
        self.generation += 1
        if not self.members:
            return
        share, extra = divmod(self._partitions, len(self.members))
        free = set(range(self._partitions))
        quotas = {}
        for rank, member in enumerate(sorted(self.members.values(), key=lambda member: -len(member.owned))):
            quotas[member.id] = share + (rank < extra)
            member.target = set(sorted(member.owned)[: quotas[member.id]])
            free -= member.target
        spare = iter(sorted(free))
        for member in self.members.values():
            missing = quotas[member.id] - len(member.target)
            member.target.update(next(spare) for _ in range(missing))
