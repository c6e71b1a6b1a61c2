"""The invoke stage as the loop sees it: it hands tasks to the executor and turns their outcomes into transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from eventbus.clock import Deadline
from eventbus.errors import EventBusError
from eventbus.logfields import fields_logger
from eventbus.metadata import InvokeCommit, decode_invoke, encode_invoke
from eventbus.names import Stage
from eventbus.ports import Clock, Commit, Committed, Output, Record
from eventbus.topics import Topology
from sensors.actions.base import Action, ActionError, TransactionalAction
from sensors.invoke import Invoker, InvokeStep
from sensors.metrics import SensorMetrics
from sensors.pauses import Pauses
from sensors.plan import SensorPlan
from sensors.runner.executor import Completion, Executor
from sensors.runner.logic import Transaction
from sensors.runner.ownership import Beginnings, check_owner
from sensors.tasks import Task

_WAIT_WHILE_RUNNING = 0.005
"""How long new records may wait for the loop while actions run; the executor cannot interrupt a poll."""

log = fields_logger("eventbus.sensor")


class InvokeStage:
    """Reads the action topic."""

    stage = Stage.INVOKE

    def __init__(
        self,
        plan: SensorPlan,
        topology: Topology,
        invoker: Invoker,
        actions: Mapping[str, Action | TransactionalAction],
        executor: Executor,
        *,
        clock: Clock,
        metrics: SensorMetrics,
        drain_seconds: float,
        pauses: Callable[[], Pauses] = dict,
    ) -> None:
        """`pauses` tells which triggers are paused, and raises `RetriableError` while it cannot know."""
        self._plan = plan
        self._invoker = invoker
        self._actions: dict[str, Action] = {}
        self._writers: dict[str, TransactionalAction] = {}
        for trigger, action in actions.items():
            if isinstance(action, TransactionalAction):
                self._writers[trigger] = action
            else:
                self._actions[trigger] = action
        self._executor = executor
        self._clock = clock
        self._metrics = metrics
        self._drain_seconds = drain_seconds
        self._ask_pauses = pauses
        self.pauses: Pauses = {}
        self._start: dict[int, InvokeCommit] = {}
        self._beginnings = Beginnings(plan.name, topology, Stage.INVOKE, plan.owner.generation)
        self._first_outputs: dict[int, Output] = {}

    # --- partitions -------------------------------------------------------------------------------------------------

    def opened(self, partition: int, committed: Committed | None) -> tuple[str, int] | None:
        self._heed_pauses()  # nothing is begun before they are known
        if committed is None:
            return self._beginnings.place(partition)
        commit = decode_invoke(committed.offset, committed.metadata)
        check_owner(self._plan.name, self._plan.owner, commit.owner)
        self._start[partition] = commit
        return None

    def load(self, partition: int, record: Record) -> None:
        self._beginnings.load(partition, record)

    def restored(self, partition: int, offsets: tuple[int, int]) -> int:
        commit = self._start.pop(partition, None)
        if commit is None:
            commit = InvokeCommit(self._plan.owner, offsets[0], ())
            self._first_outputs[partition] = self._beginnings.begin(partition, commit.offset)
        self._invoker.open(partition, commit)
        return commit.offset

    def dropped(self, partition: int) -> None:
        self._start.pop(partition, None)
        self._beginnings.forget(partition)
        self._first_outputs.pop(partition, None)
        self._invoker.drop(partition)

    def congested(self) -> set[int]:
        return self._invoker.congested()

    def working(self) -> bool:
        """Who only waits for a retry, or for a rate limit, is not stuck either."""
        return self._invoker.any_running() or self._invoker.next_wakeup() is not None

    def idle(self) -> bool:
        return self._invoker.idle() and not self._first_outputs

    def revoking(self, partitions: Sequence[int]) -> Iterable[Transaction]:
        """Begin nothing more, wait for what is under way, commit what is finished, own up to the rest."""
        deadline = Deadline(self._clock, self._drain_seconds)
        self._invoker.hold(partitions)
        while self._invoker.running(partitions) and not deadline.over():
            self._collect(min(deadline.left(), 0.1))
        self._invoker.release(partitions, self._clock.now_ms())
        return self._transactions(self._invoker.finish())

    def _heed_pauses(self) -> None:
        pauses = self._ask_pauses()
        if pauses != self.pauses:
            self._invoker.pause(pauses)
            self._metrics.show_paused(ended=self.pauses.keys() - pauses.keys(), begun=pauses.keys())
            self.pauses = pauses

    # --- work -------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float) -> float:
        """While actions run, wait for their outcomes rather than for records."""
        self._heed_pauses()
        self._begin()
        if self._invoker.any_running():
            self._collect(min(timeout, _WAIT_WHILE_RUNNING))
            return 0.0
        self._collect(0.0)
        wakeup = self._invoker.next_wakeup()
        return timeout if wakeup is None else max(0.0, min(timeout, wakeup - self._clock.monotonic()))

    def work(self, records: Sequence[Record]) -> Iterable[Transaction]:
        self._invoker.receive(records)
        self._begin()
        return self._transactions(self._invoker.transaction(self._clock.now_ms()))

    def committed(self) -> None:
        self._invoker.committed()
        self._first_outputs = {}

    def aborted(self) -> bool:
        self._invoker.aborted()
        return True

    def _transactions(self, step: InvokeStep | None) -> Iterable[Transaction]:
        commits = {} if step is None else step.commits
        commits |= {p: self._invoker.position(p) for p in self._first_outputs if p not in commits}
        if not commits:
            return ()
        outputs = [*self._first_outputs.values(), *(step.outputs if step else ())]
        return (Transaction(outputs, [Commit(p, c.offset, encode_invoke(c)) for p, c in commits.items()]),)

    def _begin(self) -> None:
        for task in self._invoker.startable(self._clock.monotonic(), self._clock.now_ms()):
            trigger = task.fact.trigger
            if task.attempt > 1:
                self._metrics.retried.labels(str(self._plan.name), trigger).inc()
            if trigger in self._writers:
                self._write(task, self._writers[trigger])
            else:
                self._executor.submit(partial(self._invoke, task, self._actions[trigger]))

    def _collect(self, timeout: float) -> None:
        for complete in self._executor.completions(timeout):
            complete()
        self._begin()

    def _write(self, task: Task, action: TransactionalAction) -> None:
        """Its records go into the transaction that marks it as done: exactly once."""
        try:
            outputs = action.outputs(task.call(self._plan.name.sensor))
        except (ActionError, EventBusError) as error:
            self._failed(task, _as_action_error(error))
        else:
            self._invoker.succeeded(task, "written", self._clock.now_ms(), outputs)
            self._count(task, "succeeded")

    def _invoke(self, task: Task, action: Action) -> Completion:
        """Runs in a worker thread; what it returns runs in the loop's."""
        try:
            status = action.invoke(task.call(self._plan.name.sensor))
        except (ActionError, EventBusError) as error:
            failure = _as_action_error(error)
            return lambda: self._failed(task, failure)
        except BaseException as error:
            log.exception("trigger %s: the action failed in an unexpected way", task.fact.trigger)
            failure = ActionError(_described(error), retriable=True, sent=True)
            return lambda: self._failed(task, failure)
        return lambda: self._succeeded(task, status)

    def _succeeded(self, task: Task, status: str) -> None:
        self._count(task, "succeeded")
        self._invoker.succeeded(task, status, self._clock.now_ms())

    def _failed(self, task: Task, error: ActionError) -> None:
        self._count(task, "failed")
        log.warning("trigger %s, action %s, attempt %d: %s", task.fact.trigger, task.fact.id, task.attempt, error)
        self._invoker.failed(task, error, self._clock.monotonic(), self._clock.now_ms())

    def _count(self, task: Task, outcome: str) -> None:
        self._metrics.invoked.labels(str(self._plan.name), task.fact.trigger, outcome).inc()


def _described(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # somebody else's error, whose own text cannot be had
        return type(error).__name__


def _as_action_error(error: ActionError | EventBusError) -> ActionError:
    """A record that cannot be read will not be readable next time either."""
    return error if isinstance(error, ActionError) else ActionError(str(error), retriable=False, sent=False)
