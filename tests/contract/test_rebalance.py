"""Cooperative rebalancing: partitions move one at a time, and never have two owners."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eventbus.ports import Commit, Committed
from tests.contract.lab import Lab, commit_offset, settle, values


def test_a_single_member_gets_everything(lab: Lab) -> None:
    member = lab.member(lab.topic(partitions=3), partitions=3)
    assert member.told == [("assigned", [0, 1, 2])]


def test_a_newcomer_gets_only_what_others_have_given_up(lab: Lab) -> None:
    topic = lab.topic(partitions=4)
    first = lab.member(topic, partitions=4)
    second = lab.consumer(topic)
    settle([first, second], lambda: len(second.partitions) == 2)
    assert [event for event, _partitions in first.told] == ["assigned", "revoked"]
    given_up = first.told[1][1]
    assert [told for told in second.told if told[1]] == [("assigned", given_up)]
    assert first.partitions | second.partitions == {0, 1, 2, 3}
    assert not first.partitions & second.partitions


def test_what_a_member_keeps_goes_on_without_interruption(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    first = lab.member(topic, partitions=2)
    first.start(0, 1)
    lab.write(topic, b"before 0", partition=0)
    lab.write(topic, b"before 1", partition=1)
    first.receive(2)
    second = lab.consumer(topic)
    settle([first, second], lambda: len(second.partitions) == 1)
    [kept] = first.partitions
    lab.write(topic, b"after", partition=kept)
    assert values(first.receive(1)) == [b"after"]
    assert first.consumer.position(kept) >= 3


def test_what_a_member_gave_up_is_not_delivered_to_it_any_more(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    first = lab.member(topic, partitions=2)
    first.start(0, 1)
    second = lab.consumer(topic)
    settle([first, second], lambda: len(second.partitions) == 1)
    [moved] = second.partitions
    lab.write(topic, b"moved", partition=moved)
    second.start(moved)
    assert values(second.receive(1)) == [b"moved"]
    assert first.is_silent()


def test_three_members_share_evenly_and_the_last_one_gets_all_back(lab: Lab) -> None:
    topic = lab.topic(partitions=6)
    members = [lab.consumer(topic) for _ in range(3)]
    settle(members, lambda: [len(member.partitions) for member in members] == [2, 2, 2])
    assert set().union(*(member.partitions for member in members)) == set(range(6))
    members[0].consumer.close()
    settle(members[1:], lambda: [len(member.partitions) for member in members[1:]] == [3, 3])
    members[1].consumer.close()
    settle(members[2:], lambda: members[2].partitions == set(range(6)))


def test_more_members_than_partitions_leave_one_idle_until_it_is_needed(lab: Lab) -> None:
    topic = lab.topic()
    busy = lab.member(topic)
    idle = lab.consumer(topic)
    settle([busy, idle], lambda: idle.told != [])
    assert idle.told == [("assigned", [])]
    busy.consumer.close()
    settle([idle], lambda: idle.partitions == {0})


def test_revoked_is_the_last_moment_to_commit(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    first = lab.member(topic, partitions=2)
    producer = lab.producer()

    def commit(partitions: Sequence[int]) -> None:
        for partition in partitions:
            commit_offset(producer, topic, Commit(partition, 7, "on revoke"), first)

    first.on_revoked = commit
    second = lab.consumer(topic)
    settle([first, second], lambda: len(second.partitions) == 1)
    [moved] = second.partitions
    assert lab.committed(topic)[moved] == Committed(7, "on revoke")
    first.consumer.close()


def test_close_revokes_and_is_a_last_moment_to_commit_too(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    member = lab.member(topic, partitions=2)
    producer = lab.producer()
    member.on_revoked = lambda partitions: commit_offset(producer, topic, Commit(1, 7, "on close"), member)
    member.consumer.close()
    assert member.told[1:] == [("revoked", [0, 1])]
    assert lab.committed(topic)[1] == Committed(7, "on close")


def test_who_leaves_while_partitions_are_on_their_way_is_told_nothing(lab: Lab) -> None:
    """And does leave: librdkafka waits for ever for an assignment that comes while it is being closed."""
    topic = lab.topic(partitions=2)
    first = lab.member(topic, partitions=2)
    second = lab.consumer(topic)
    first.consumer.close()  # from now on all partitions are on their way to the second, who never asks
    second.consumer.close()
    assert second.told == []
    third = lab.member(topic, partitions=2)
    assert third.partitions == {0, 1}


def test_a_listener_that_fails_on_revoke_is_heard_and_the_partition_moves_all_the_same(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    first = lab.member(topic, partitions=2)
    first.on_revoked = fail
    second = lab.consumer(topic)
    with pytest.raises(LookupError, match="from the listener"):
        settle([first, second], lambda: len(second.partitions) == 1)
    first.on_revoked = lambda _partitions: None
    settle([first, second], lambda: len(second.partitions) == 1)
    assert not first.partitions & second.partitions


def test_a_listener_that_fails_on_close_is_heard(lab: Lab) -> None:
    member = lab.member(lab.topic())
    member.on_revoked = fail
    with pytest.raises(LookupError, match="from the listener"):
        member.consumer.close()


def fail(_partitions: Sequence[int]) -> None:
    raise LookupError("from the listener")
