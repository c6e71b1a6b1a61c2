"""The end of a simulation: no more faults, and everything has to come to rest by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbus.errors import LogError
from eventbus.metadata import decode_join
from eventbus.names import Stage
from eventbus.ports import Committed
from tests.sim.specs import NAME

if TYPE_CHECKING:
    from tests.sim.processes import Process
    from tests.sim.simulation import Simulation

_ROUNDS = 3000
_BLINK = 0.001
_PATIENCE = 2.0
"""How long everybody waits at a time when nobody has anything to do. Shorter than a session."""


def settle(simulation: Simulation) -> bool:
    """Every stage works for as long as it finds something to do; then time passes. Whether it came to rest."""
    for _ in range(_ROUNDS):
        simulation.markers.deliver_all()
        busy = [_work_off(simulation, process) for process in list(simulation.processes.values())]
        if not any(busy):
            if _at_rest(simulation):
                return True
            simulation.clock.advance(_pause(simulation))
    return False


def _pause(simulation: Simulation) -> float:
    """Until somebody wants to be asked again: a rate limit lets one action begin at a time."""
    now = simulation.clock.monotonic()
    due = [process.wakeup() for process in simulation.processes.values() if process.alive]
    return min([_PATIENCE, *(max(moment - now, _BLINK) for moment in due if moment is not None)])


def _work_off(simulation: Simulation, process: Process) -> bool:
    """Returns whether there was anything to do."""
    before = process.deeds
    for stage in range(len(Stage)):
        deeds = -1
        while process.alive and deeds != process.deeds:
            deeds = process.deeds
            process.executor.complete(len(process.executor.pending))
            simulation.step(process, stage)
    if not process.alive:
        simulation.start(process.slot)
    return process.deeds != before


def _at_rest(simulation: Simulation) -> bool:
    """Every partition is with a running replica, and everything is done."""
    topology = simulation.topology
    partitions = topology.event_partitions + topology.trigger_partitions + topology.action_partitions
    loops = [loop for process in simulation.processes.values() for loop in process.loops]
    if not all(loop.ready() for loop in loops) or sum(len(loop._assignments) for loop in loops) < partitions:
        return False
    try:
        for stage in Stage:
            topic = NAME.input_topic(stage)
            for partition, committed in simulation.cluster.committed(NAME.group(stage), topic).items():
                if committed is None or _lags(simulation, stage, partition, committed):
                    return False
    except LogError:
        return False
    return all(process.idle() for process in simulation.processes.values())


def _lags(simulation: Simulation, stage: Stage, partition: int, committed: Committed) -> bool:
    log = simulation.log_of(NAME.input_topic(stage), partition)
    if log.last_stable_offset < log.end:
        return True
    position = committed.offset
    if stage is Stage.JOIN:
        join = decode_join(committed.offset, committed.metadata)
        if join.owner.generation < len(simulation.sensors):
            return True  # the new spec has not been rolled out to this partition
        position = join.position
    return bool(log.read(position, 1)[0])
