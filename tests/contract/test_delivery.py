"""Any sequence of calls delivers exactly what was asked for: nothing twice, nothing skipped, nothing stale."""

from __future__ import annotations

import random
import time

import pytest

from eventbus.ports import Record
from tests.contract.lab import PATIENCE, Lab, Member

PARTITIONS = 3
STEPS = 120


class Model:
    """What the log holds, and what each partition must deliver next."""

    def __init__(self) -> None:
        self.records: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.flowing: dict[int, int] = {}
        self.paused: dict[int, int] = {}

    def wrote(self, partition: int, count: int) -> None:
        end = self.ends[partition]
        self.records[partition] += range(end, end + count)
        self.ends[partition] = end + count + 1

    def delivered(self, record: Record) -> None:
        assert record.partition in self.flowing, f"{record} of a partition that should be silent"
        due = self.due(record.partition)
        assert due, f"{record} was delivered before"
        assert record.offset == due[0], f"{record} instead of offset {due[0]}"
        self.flowing[record.partition] = record.offset + 1

    def due(self, partition: int) -> list[int]:
        return [offset for offset in self.records[partition] if offset >= self.flowing[partition]]

    def anything_due(self) -> bool:
        return any(self.due(partition) for partition in self.flowing)


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_calls_delivers_exactly_what_was_asked_for(lab: Lab, seed: int) -> None:
    choices = random.Random(seed)
    topic = lab.topic(PARTITIONS)
    model = Model()
    member = lab.member(topic, PARTITIONS)
    for _ in range(STEPS):
        step(choices, lab, topic, member, model)
    resume(member, model, range(PARTITIONS))
    deadline = time.monotonic() + PATIENCE
    while model.anything_due():
        assert time.monotonic() < deadline, f"still due: {[(p, model.due(p)[:3]) for p in model.flowing]}"
        for record in member.consumer.poll(1000, 0.2):
            model.delivered(record)
    assert member.is_silent()


def step(choices: random.Random, lab: Lab, topic: str, member: Member, model: Model) -> None:
    partition = choices.randrange(PARTITIONS)
    match choices.choice(["write", "poll", "poll", "poll", "start", "stop", "pause", "resume"]):
        case "write":
            count = choices.choice([1, 2, 50])
            lab.write(topic, *[b"x" * 100] * count, partition=partition)
            model.wrote(partition, count)
        case "poll":
            for record in member.consumer.poll(choices.choice([1, 3, 1000]), choices.choice([0, 0.001, 0.02])):
                model.delivered(record)
        case "start":
            offset = choices.randint(0, model.ends[partition])
            member.start(partition, offset=offset)
            model.paused.pop(partition, None)
            model.flowing[partition] = offset
        case "stop":
            member.consumer.stop(partition)
            model.flowing.pop(partition, None)
            model.paused.pop(partition, None)
        case "pause":
            member.consumer.pause([partition])
            if partition in model.flowing:
                model.paused[partition] = model.flowing.pop(partition)
        case "resume":
            resume(member, model, [partition])


def resume(member: Member, model: Model, partitions: range | list[int]) -> None:
    member.consumer.resume(partitions)
    for partition in partitions:
        if partition in model.paused:
            model.flowing[partition] = model.paused.pop(partition)
