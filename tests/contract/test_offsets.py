"""Offsets and their metadata as part of transactions, and who may commit them."""

from __future__ import annotations

import time

import pytest

from eventbus.errors import AbortableError, FatalError, RetriableError
from eventbus.ports import Commit, Committed, Output, TopicSpec
from tests.contract.lab import PATIENCE, Lab, commit_offset, settle, stable, values


def test_offsets_and_metadata_are_committed_with_the_records(lab: Lab) -> None:
    source, target = lab.topic(partitions=2), lab.topic()
    member = lab.member(source, partitions=2)
    producer = lab.producer()
    producer.begin()
    producer.produce([Output(target, 0, None, b"a")])
    producer.send_offsets(source, [Commit(1, 17, "v1;t=3,5")], member.consumer.group_metadata())
    producer.commit()
    expected = {0: None, 1: Committed(17, "v1;t=3,5")}
    assert stable(lambda: member.consumer.committed([0, 1])) == expected
    assert lab.committed(source) == expected
    assert values(lab.read_all(target)) == [b"a"]


def test_empty_metadata_stays_empty(lab: Lab) -> None:
    topic = lab.topic()
    member = lab.member(topic)
    commit_offset(lab.producer(), topic, Commit(0, 3, ""), member)
    assert stable(lambda: member.consumer.committed([0])) == {0: Committed(3, "")}


def test_an_abort_commits_no_offsets(lab: Lab) -> None:
    topic = lab.topic()
    member = lab.member(topic)
    producer = lab.producer()
    commit_offset(producer, topic, Commit(0, 1, "first"), member)
    producer.begin()
    producer.send_offsets(topic, [Commit(0, 2, "second")], member.consumer.group_metadata())
    producer.abort()
    assert stable(lambda: member.consumer.committed([0])) == {0: Committed(1, "first")}


def test_while_a_commit_is_pending_there_is_no_answer_rather_than_an_old_one(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    member = lab.member(topic, partitions=2)
    producer = lab.producer()
    producer.begin()
    producer.send_offsets(topic, [Commit(0, 5, "m")], member.consumer.group_metadata())
    with pytest.raises(RetriableError):
        member.consumer.committed([0, 1])
    with pytest.raises(RetriableError):
        lab.cluster.committed(lab.name("group"), topic)
    assert member.consumer.committed([1]) == {1: None}
    producer.commit()
    assert stable(lambda: member.consumer.committed([0, 1])) == {0: Committed(5, "m"), 1: None}


def test_a_successor_of_a_pending_commit_gets_the_last_finished_one(lab: Lab) -> None:
    topic = lab.topic()
    member = lab.member(topic)
    producer = lab.producer()
    commit_offset(producer, topic, Commit(0, 1, "finished"), member)
    producer.begin()
    producer.send_offsets(topic, [Commit(0, 2, "unfinished")], member.consumer.group_metadata())
    lab.producer()
    assert stable(lambda: member.consumer.committed([0])) == {0: Committed(1, "finished")}


def test_metadata_of_4095_characters_fits(lab: Lab) -> None:
    topic = lab.topic()
    member = lab.member(topic)
    commit_offset(lab.producer(), topic, Commit(0, 1, "x" * 4095), member)
    assert stable(lambda: member.consumer.committed([0])) == {0: Committed(1, "x" * 4095)}


def test_larger_metadata_spoils_the_transaction_but_not_the_producer(lab: Lab) -> None:
    topic = lab.topic()
    member = lab.member(topic)
    producer = lab.producer()
    producer.begin()
    producer.produce([Output(topic, 0, None, b"spoilt")])
    with pytest.raises(AbortableError):
        producer.send_offsets(topic, [Commit(0, 1, "x" * 4096)], member.consumer.group_metadata())
    with pytest.raises(AbortableError):
        producer.commit()
    producer.abort()
    commit_offset(producer, topic, Commit(0, 1, "small"), member)
    assert stable(lambda: member.consumer.committed([0])) == {0: Committed(1, "small")}
    assert lab.read_all(topic) == []


def test_a_generation_that_is_over_cannot_commit(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    first = lab.member(topic, partitions=2)
    stale = [first.consumer.group_metadata()]
    first.on_revoked = lambda _partitions: stale.append(first.consumer.group_metadata())
    second = lab.consumer(topic)
    settle([first, second], lambda: len(first.partitions) == len(second.partitions) == 1)
    producer = lab.producer()
    assert len(stale) == 2
    for metadata in stale:
        producer.begin()
        with pytest.raises(AbortableError):
            producer.send_offsets(topic, [Commit(0, 1, "stale")], metadata)
        producer.abort()
    commit_offset(producer, topic, Commit(0, 1, "fresh"), first)
    assert lab.committed(topic)[0] == Committed(1, "fresh")


def test_a_member_that_has_left_cannot_commit(lab: Lab) -> None:
    topic = lab.topic()
    leaver = lab.member(topic)
    gone = leaver.consumer.group_metadata()
    leaver.consumer.close()
    lab.member(topic)
    producer = lab.producer()
    producer.begin()
    with pytest.raises(AbortableError):
        producer.send_offsets(topic, [Commit(0, 1, "ghost")], gone)
    producer.abort()
    assert lab.committed(topic) == {0: None}


def test_who_is_not_yet_a_member_has_no_metadata_to_commit_with(lab: Lab, request: pytest.FixtureRequest) -> None:
    """Kafka would take offsets that name no member, from anybody."""
    if "memory" in request.node.callspec.id:
        pytest.skip("in memory one is a member from the first moment")
    stranger = lab.consumer(lab.topic())
    with pytest.raises(AbortableError):
        stranger.consumer.group_metadata()


def test_a_member_of_the_current_generation_can_commit_what_it_does_not_own(lab: Lab) -> None:
    """Not a feature, but a fact: whoever commits has to check ownership by itself."""
    topic = lab.topic(partitions=2)
    first, second = lab.consumer(topic), lab.consumer(topic)
    settle([first, second], lambda: len(first.partitions) == len(second.partitions) == 1)
    [foreign] = second.partitions
    commit_offset(lab.producer(), topic, Commit(foreign, 9, "not mine"), first)
    assert lab.committed(topic)[foreign] == Committed(9, "not mine")


def test_a_group_that_never_committed_has_no_offsets(lab: Lab) -> None:
    topic = lab.topic(partitions=3)
    assert lab.cluster.committed(lab.name("unknown"), topic) == {0: None, 1: None, 2: None}


def test_asking_for_no_partitions_is_no_question(lab: Lab) -> None:
    assert lab.member(lab.topic()).consumer.committed([]) == {}


def test_groups_do_not_see_each_others_offsets(lab: Lab) -> None:
    topic = lab.topic()
    one, other = lab.member(topic, group="one"), lab.member(topic, group="other")
    producer = lab.producer()
    commit_offset(producer, topic, Commit(0, 1, "one"), one)
    commit_offset(producer, topic, Commit(0, 2, "other"), other)
    assert lab.committed(topic, "one") == {0: Committed(1, "one")}
    assert lab.committed(topic, "other") == {0: Committed(2, "other")}


def test_the_offsets_of_a_topic_are_deleted_with_it(lab: Lab) -> None:
    topic = lab.topic()
    commit_offset(lab.producer(), topic, Commit(0, 0, "m"), lab.member(topic))
    assert lab.committed(topic)[0] == Committed(0, "m")
    lab.cluster.delete([topic])
    lab.cluster.create([TopicSpec(topic, 1, {})])
    assert lab.committed(topic) == {0: None}


def test_a_group_is_forgotten_with_all_that_it_has_committed_once_nobody_is_in_it(lab: Lab) -> None:
    topic, group = lab.topic(), lab.name("group")
    lab.cluster.forget([])
    lab.cluster.forget([lab.name("nobody")])
    member = lab.member(topic)
    commit_offset(lab.producer(), topic, Commit(0, 0, "m"), member)
    with pytest.raises(FatalError):
        lab.cluster.forget([group])
    assert lab.committed(topic)[0] == Committed(0, "m")
    member.consumer.close()
    _wait_until_empty(lab, group)
    lab.cluster.forget([group])
    assert lab.committed(topic) == {0: None}


def test_a_groups_members_are_counted_without_joining_it(lab: Lab) -> None:
    topic = lab.topic()
    assert lab.cluster.members(lab.name("group")) == 0
    member = lab.member(topic)
    assert lab.cluster.members(lab.name("group")) == 1
    member.consumer.close()
    _wait_until_empty(lab, lab.name("group"))


def _wait_until_empty(lab: Lab, group: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while lab.cluster.members(group):
        assert time.monotonic() < deadline
