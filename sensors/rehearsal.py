"""The join without a log: records are evaluated, and nothing is ever committed. For audits and backtests.

It is the product's own `JoinPartition`. Whoever rehearses may see only some slots of a partition (the others
are somebody else's work), and is told what the partition's clock was when a record came.
"""

from __future__ import annotations

import msgspec

from eventbus.metadata import JoinCommit
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.join import JoinPartition, Unused
from sensors.plan import SensorPlan


class Rest(msgspec.Struct, frozen=True):
    """What was let go between two rests."""

    outputs: list[Output]
    unused: list[Unused]


class Rehearsal(JoinPartition):
    """One partition of the trigger topic, from an empty slot on."""

    def __init__(self, plan: SensorPlan, topology: Topology, partition: int, replica: str) -> None:
        super().__init__(plan, topology, partition, JoinCommit(plan.owner, 0, 0, {}), replica)

    def evaluate(self, record: Record, clock: int) -> list[Output]:
        """What one record causes. `clock` is the latest time in the partition up to this record."""
        self._clock = max(self._clock, clock)
        outputs: list[Output] = []
        self._evaluate(record, outputs)
        self._position = record.offset + 1
        return outputs

    def rest(self, clock: int) -> Rest:
        """Let go of what has outlived its time by then, and of all that is only kept for a commit.

        A sensor that runs sweeps some slots with every transaction. Here there is none that could grow too large, and
        batches may be larger than a sweep: what is left to the next one might pile up.
        """
        self._clock = max(self._clock, clock)
        outputs: list[Output] = []
        unused: list[Unused] = []
        while True:
            step = self.step([])
            outputs += [] if step is None else step.outputs
            unused += self._unused if step is None else step.unused
            self._unused = []
            if not self._keyed.overdue(self._clock):
                return Rest(outputs, unused)
