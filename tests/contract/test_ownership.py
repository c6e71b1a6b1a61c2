"""However members come, go and dawdle: no partition ever has two owners, and in the end every partition has one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from eventbus.memory import MemoryCluster
from tests.contract.lab import Lab, Member, settle

PARTITIONS = 5
MOST_MEMBERS = 4


class Crowd:
    """The members of a group, and who owns what."""

    def __init__(self, lab: Lab, topic: str) -> None:
        self._lab = lab
        self._topic = topic
        self.members: list[Member] = []
        self.owners: dict[int, Member] = {}

    def join(self) -> None:
        member = self._lab.consumer(self._topic)
        self.members.append(member)

        def assigned(partitions: Sequence[int]) -> None:
            for partition in partitions:
                assert partition not in self.owners, f"{partition} has two owners"
                self.owners[partition] = member

        def revoked(partitions: Sequence[int]) -> None:
            for partition in partitions:
                assert self.owners.pop(partition) is member

        member.on_assigned, member.on_revoked = assigned, revoked

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.consumer.close()

    def settled(self) -> bool:
        """Every partition has an owner, and nobody has two more than another."""
        shares = [len(member.partitions) for member in self.members]
        return sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_no_partition_ever_has_two_owners(lab: Lab, seed: int) -> None:
    choices = random.Random(seed)
    crowd = Crowd(lab, lab.topic(PARTITIONS))
    crowd.join()
    steps, patience = (400, 0.0) if isinstance(lab.cluster, MemoryCluster) else (80, 0.01)
    for _ in range(steps):
        match choices.choices(["poll", "join", "leave"], [20, 1, 1])[0]:
            case "join" if len(crowd.members) < MOST_MEMBERS:
                crowd.join()
            case "leave" if len(crowd.members) > 1:
                crowd.leave(choices.choice(crowd.members))
            case _:
                choices.choice(crowd.members).consumer.poll(1, patience)
    settle(crowd.members, crowd.settled)
    assert sorted(crowd.owners) == list(range(PARTITIONS))
