"""The replicas of a sensor, each a process of its own, and an account of everything that was done to them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import e2e
from e2e.chaos.evidence import now_ms
from e2e.chaos.points import DISARM
from eventbus.bus import Bus
from sensors.audit.invocations import Mishap
from sensors.replicalogs import last_words

ROOT = Path(e2e.__file__).parents[1]
_KILLED = -signal.SIGKILL
_STOPPED_EARLY = -signal.SIGTERM
"""SIGTERM came before the replica had said what to do about it."""
_RANDOM = "SIGKILL"
_STOP_SECONDS = 60.0
_ZOMBIE_MS = 6000
"""What a suspended replica had queued it still begins when it goes on, until it learns that others have taken over."""


class Member:
    """One process of one slot."""

    def __init__(self, slot: int, process: asyncio.subprocess.Process, log_start: int) -> None:
        self.slot = slot
        self.log_start = log_start
        self.process = process
        self.armed = False
        self.suspended = False
        self.doom: str | None = None
        self.doomed_ms = 0
        self.told_to_stop_ms: int | None = None

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def untouched(self) -> bool:
        """Nothing has been done to it yet."""
        return self.alive and not (self.suspended or self.armed or self.told_to_stop_ms)

    def kill(self) -> None:
        """SIGKILL: no farewell, no clean-up, in the middle of whatever it was doing."""
        self.doom, self.doomed_ms = _RANDOM, now_ms()
        self.process.kill()

    def arm(self, point: str) -> None:
        """Let it kill itself when it passes this point next."""
        self.armed = True
        self.doom, self.doomed_ms = f"SIGKILL at {point}", now_ms()
        self._say(point)

    def disarm(self) -> None:
        self.armed = False
        self._say(DISARM)

    def terminate(self) -> None:
        if self.told_to_stop_ms is None:
            self.told_to_stop_ms = now_ms()
            self.process.terminate()

    def suspend(self) -> None:
        self.suspended = True
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.suspended = False
        if self.alive:
            self.process.send_signal(signal.SIGCONT)

    def _say(self, line: str) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(f"{line}\n".encode())


class Fleet:
    """Keeps as many replicas running as are wanted. One that dies is started again, in the same slot."""

    def __init__(self, bus: Bus, manifest: Path, *, rest: Callable[[], Awaitable[None]]) -> None:
        """`rest` returns when the slot of a dead replica may be filled again."""
        self.members: dict[int, Member] = {}
        self.mishaps: list[Mishap] = []
        self.faults: Counter[str] = Counter()
        self.unexplained: list[str] = []
        self._manifest = manifest
        self._bus = ["--bootstrap-servers", bus.bootstrap_servers, "--namespace", bus.name.namespace]
        self._rest = rest
        self._wanted = 0
        self._keepers: dict[int, asyncio.Task[None]] = {}

    # --- what is asked of it ----------------------------------------------------------------------------------------

    def scale(self, wanted: int) -> None:
        """To so many replicas: the highest slots go first, as in a StatefulSet."""
        self._wanted = wanted
        for slot in range(wanted):
            if slot not in self._keepers:
                self._keepers[slot] = asyncio.create_task(self._keep(slot))
        for member in self.members.values():
            if member.slot >= wanted and member.alive:
                member.terminate()

    async def stop(self) -> None:
        """SIGTERM for all; returns when the last one has ended."""
        self.scale(0)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.gather(*self._keepers.values())
        except TimeoutError:
            self.unexplained.append(f"replicas have not ended {_STOP_SECONDS:g} s after SIGTERM")
            for member in self.running():
                member.process.kill()

    def running(self) -> list[Member]:
        return [member for member in self.members.values() if member.alive]

    def is_ready(self, member: Member) -> bool:
        """Whether it has said so."""
        return b" is ready, slot " in self.log(member.slot).read_bytes()[member.log_start :]

    def suspended(self, member: Member, began_ms: int) -> None:
        """Note that a replica was suspended until now."""
        self.faults["zombie"] += 1
        self.mishaps.append(Mishap(str(member.slot), began_ms, now_ms() + _ZOMBIE_MS, "SIGSTOP, SIGCONT"))

    def all_had(self, name: str, began_ms: int, ended_ms: int, slots: int) -> None:
        """Note something that happened to all replicas."""
        self.mishaps += [Mishap(str(slot), began_ms, ended_ms, name) for slot in range(slots)]

    def log(self, slot: int) -> Path:
        return self._manifest.with_suffix(f".{slot}.log")

    def logs(self) -> dict[int, Path]:
        return {slot: self.log(slot) for slot in self.members}

    # --- one slot ---------------------------------------------------------------------------------------------------

    async def _keep(self, slot: int) -> None:
        try:
            while slot < self._wanted:
                member = self.members[slot] = await self._start(slot)
                code = await member.process.wait()
                self._note_end(member, code)
                if slot < self._wanted:
                    await self._rest()
        finally:
            del self._keepers[slot]

    async def _start(self, slot: int) -> Member:
        command = ["run", str(self._manifest), "--slot", str(slot), *self._bus, "--log-format", "json"]
        with self.log(slot).open("ab") as log:
            log_start = log.tell()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "e2e.chaos.replica", *command),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        return Member(slot, process, log_start)

    def _note_end(self, member: Member, code: int) -> None:
        slot = str(member.slot)
        if code == _KILLED and member.doom is not None:
            self.faults[_RANDOM if member.doom == _RANDOM else "SIGKILL at a named point"] += 1
            self.mishaps.append(Mishap(slot, member.doomed_ms, now_ms(), member.doom))
        elif code in (0, _STOPPED_EARLY) and member.told_to_stop_ms is not None:
            self.mishaps.append(Mishap(slot, member.told_to_stop_ms, now_ms(), "SIGTERM"))
        else:
            self.unexplained.append(f"replica {slot} has ended with {code}: {last_words(self.log(member.slot))}")
