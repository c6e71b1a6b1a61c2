"""The program of a replica: the `eventbus` command, with points at which it can be made to kill itself.

python -m e2e.chaos.replica run sensor.yaml --slot 0 …

Its requests tell the sink who calls, and its log how much a restarted partition reads again.

Standard input takes the name of a point per line and arms it. When it ends, so does the replica: it must not outlive
the run that started it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Any

from e2e.chaos.points import Trap
from e2e.chaos.sink import CALLER
from eventbus.cli.main import main
from eventbus.metadata import decode_join
from eventbus.ports import Committed
from sensors.actions.base import ActionContext
from sensors.actions.http import HttpAction, HttpSpec
from sensors.runner.stages import JoinStage

REPLAY = "replay"
"""The member of a log line that tells how many records a restarted partition reads again."""

log = logging.getLogger("eventbus.chaos")


def _obey(trap: Trap) -> None:
    # Not `sys.stdin`: its lock, held by a thread that waits, would hinder the interpreter's own end.
    while command := os.read(0, 1000).decode():
        trap.armed = command.splitlines()[-1]
    os.kill(os.getpid(), signal.SIGTERM)


def _tell_who_calls(slot: str) -> None:
    action: Any = HttpAction
    original = HttpAction.__init__

    def init(self: HttpAction, spec: HttpSpec, context: ActionContext) -> None:
        original(self, spec.model_copy(update={"headers": {**spec.headers, CALLER: slot}}), context)

    action.__init__ = init


def _tell_replays() -> None:
    stage: Any = JoinStage
    original = JoinStage.opened

    def opened(self: JoinStage, partition: int, committed: Committed | None) -> tuple[str, int] | None:
        if committed is not None:
            commit = decode_join(committed.offset, committed.metadata)
            log.info("join: partition %d is read again", partition, extra={REPLAY: commit.position - commit.offset})
        return original(self, partition, committed)

    stage.opened = opened


if __name__ == "__main__":
    trap = Trap()
    trap.install()
    _tell_who_calls(sys.argv[sys.argv.index("--slot") + 1])
    _tell_replays()
    threading.Thread(target=_obey, args=(trap,), daemon=True).start()
    main()
