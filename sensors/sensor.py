"""The sensor as a library user sees it: loaded from YAML or declared in Python, and run on a bus."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from eventbus.bus import Bus
from eventbus.errors import ConfigError
from eventbus.hashing import short_digest
from eventbus.metadata import DIGEST_CHARACTERS, Owner
from eventbus.names import BusName, SensorName
from eventbus.ports import Cluster
from eventbus.topics import ensure_sensor_topics
from sensors.actions import make_action
from sensors.actions.base import Action, ActionCall, ActionContext, TransactionalAction
from sensors.actions.python import PythonAction, PythonSpec
from sensors.conditions import Condition
from sensors.dlqactions import dlq_name
from sensors.filters.candidate import Scripts
from sensors.filters.gate import compile_gate
from sensors.plan import DependencyPlan, SensorPlan, TriggerPlan
from sensors.retry import RetryPolicy
from sensors.runner.replica import Blueprint, Replica, Settings
from sensors.runner.slots import claim_slot
from sensors.scripts import ScriptHost
from sensors.spec.loader import load_manifest, load_manifests, make_manifest
from sensors.spec.models import Dependency, SensorManifest, Trigger, TriggerBase
from sensors.tasks import Delivery, RateLimit

Function = TypeVar("Function", bound=Callable[[ActionCall], Any])


class Sensor:
    """Which events to wait for, and what to do about them.

    >>> from eventbus import Bus, Event
    >>> from sensors import Sensor
    >>> sensor = Sensor("greeter", {"hello": ("shop", "hello"), "world": ("shop", "world")})
    >>> @sensor.trigger("greet", "hello && world")
    ... def greet(call):
    ...     print(call.events["hello"].json(), call.events["world"].json())
    >>> with Bus.memory() as bus, sensor.start(bus) as running:
    ...     running.wait_ready()
    ...     _ = bus.publish(Event.new("shop", "hello", "Hello,"), Event.new("shop", "world", "world!"))
    ...     running.settle()
    Hello, world!
    """

    def __init__(
        self,
        name: str,
        dependencies: Mapping[str, tuple[str, str] | Mapping[str, Any]],
        *,
        generation: int = 1,
        start_from: str = "latest",
    ) -> None:
        """Declare a sensor in Python.

        `dependencies` maps a name to (source, event name), or to the fields that a manifest has for it:
        `{"eventSourceName": "shop", "eventName": "paid", "filters": {…}}`.
        """
        self._functions: dict[str, Callable[[ActionCall], Any]] = {}
        self._manifest: SensorManifest | None = None
        self._triggers: list[dict[str, Any]] = []
        self._metadata: dict[str, Any] = {"name": name, "generation": generation}
        self._spec: dict[str, Any] = {
            "startFrom": start_from,
            "dependencies": [
                {"name": dependency, **_fields(asked_for)} for dependency, asked_for in dependencies.items()
            ],
        }

    @classmethod
    def of(cls, manifest: SensorManifest) -> Sensor:
        sensor = cls(manifest.name, {})
        sensor._manifest = manifest
        return sensor

    @classmethod
    def load(cls, path: str | Path) -> Sensor:
        """The one sensor in a YAML file."""
        return cls.of(load_manifest(path))

    @classmethod
    def load_all(cls, path: str | Path) -> list[Sensor]:
        """All sensors in a YAML file."""
        return [cls.of(manifest) for manifest in load_manifests(path)]

    # --- declaring --------------------------------------------------------------------------------------------------

    def trigger(
        self,
        name: str,
        conditions: str = "",
        *,
        at_least_once: bool = False,
        retry: RetryPolicy | None = None,
        when: Mapping[str, Any] | None = None,
        dlq: Callable[[ActionCall], Any] | None = None,
    ) -> Callable[[Function], Function]:
        """Declare a trigger whose action is the decorated function. Empty conditions mean all dependencies.

        `when` says more about which events belong together, in the words of a manifest (docs/joins.md):
        `{"correlate": {"by": "data.order.id"}, "within": "10m"}`.

        The function runs in a worker thread. It gets an `ActionCall`; raising an exception makes the attempt fail.
        `dlq` is called, as often as the trigger's mode says, when the action is given up; `call.events["$failure"]`
        tells why.
        """

        def declare(function: Function) -> Function:
            trigger: dict[str, Any] = {
                "template": {"name": name, "conditions": conditions, "python": {"function": function}, **(when or {})},
                "atLeastOnce": at_least_once,
            }
            if retry is not None:
                trigger["retryStrategy"] = {
                    "steps": retry.steps,
                    "duration": timedelta(seconds=retry.duration),
                    "factor": retry.factor,
                    "jitter": retry.jitter,
                }
            if dlq is not None:
                template = {"name": f"{name}-dlq", "python": {"function": dlq}}
                trigger["dlqTrigger"] = {"template": template, "atLeastOnce": at_least_once}
            self._triggers.append(trigger)
            self._manifest = None
            return function

        return declare

    def action(self, trigger: str) -> Callable[[Function], Function]:
        """Let the decorated function be the action of a trigger that is declared already, for instance in YAML.

        The `dlqTrigger` of a trigger is called `NAME/dlq`.
        """
        names = [name for name, _ in _all_triggers(self.manifest)]
        if trigger not in names:
            raise ConfigError(
                f"the sensor `{self.manifest.name}` has no trigger `{trigger}`; it has {', '.join(names)}"
            )

        def attach(function: Function) -> Function:
            self._functions[trigger] = function
            return function

        return attach

    @property
    def manifest(self) -> SensorManifest:
        """The validated manifest. Raises `ManifestError`."""
        if self._manifest is None:
            self._manifest = make_manifest(
                {
                    "apiVersion": "eventbus.dev/v1alpha1",
                    "kind": "Sensor",
                    "metadata": self._metadata,
                    "spec": {**self._spec, "triggers": self._triggers},
                }
            )
        return self._manifest

    # --- running ----------------------------------------------------------------------------------------------------

    def start(
        self,
        bus: Bus,
        *,
        slot: str | None = None,
        partitions: int | None = None,
        settings: Settings | None = None,
    ) -> Replica:
        """Make one replica of this sensor; use it as a context manager, or call its `start` and `stop`.

        Any number of replicas may run at a time, here and elsewhere: they share the work.
        """
        blueprint = self.blueprint(bus.name)
        name = blueprint.plan.name
        topology = ensure_sensor_topics(bus.cluster, name, partitions)
        actions = self._actions(bus, name)
        claimed = claim_slot(name, slot)
        return Replica(
            bus.cluster,
            _exactly_once_where_possible(blueprint, actions),
            topology,
            actions,
            slot=claimed,
            settings=settings,
        )

    def run(self, bus: Bus, *, slot: str | None = None, settings: Settings | None = None) -> None:
        """Run in the foreground until SIGTERM or Ctrl-C, then finish what is under way."""
        with self.start(bus, slot=slot, settings=settings) as replica, stop_signals() as stopped:
            while not stopped.wait(0.2) and replica.failure is None:
                pass

    def blueprint(self, bus: BusName) -> Blueprint:
        """The sensor as its stages see it, on this bus."""
        manifest = self.manifest
        spec = manifest.spec
        digest = short_digest("spec", manifest.digest(), length=DIGEST_CHARACTERS)
        scripts = ScriptHost()
        plan = SensorPlan.of(
            sensor_name(manifest, bus),
            Owner(manifest.generation, digest),
            [_dependency(each, scripts) for each in spec.dependencies],
            [_trigger(each, spec.conditions[each.name]) for each in spec.triggers],
        )
        deliveries = {name: _delivery(trigger) for name, trigger in _all_triggers(manifest)}
        return Blueprint(plan, deliveries, from_latest=spec.startFrom == "latest", logging_fields=spec.loggingFields)

    def _actions(self, bus: Bus, name: SensorName) -> dict[str, Action | TransactionalAction]:
        context = ActionContext(
            sensor=name.sensor,
            namespace=name.bus.namespace,
            bootstrap_servers=bus.bootstrap_servers,
            partitions=_TopicPartitions(bus.cluster),
        )
        actions: dict[str, Action | TransactionalAction] = {}
        for trigger_name, trigger in _all_triggers(self.manifest):
            function = self._functions.get(trigger_name)
            if function is None:
                own = msgspec.structs.replace(context, policy=trigger.success)
                actions[trigger_name] = make_action(*trigger.action, own)
            else:
                actions[trigger_name] = PythonAction(PythonSpec(function=function), context)
        return actions


def _fields(asked_for: tuple[str, str] | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(asked_for, Mapping):
        return asked_for
    source, event = asked_for
    return {"eventSourceName": source, "eventName": event}


def sensor_name(manifest: SensorManifest, bus: BusName) -> SensorName:
    """The sensor on this bus. A manifest that names another namespace or bus does not belong there."""
    wanted = BusName(
        manifest.namespace if "namespace" in manifest.metadata.model_fields_set else bus.namespace,
        manifest.spec.eventBusName if "eventBusName" in manifest.spec.model_fields_set else bus.bus,
    )
    if wanted != bus:
        raise ConfigError(
            f"the sensor `{manifest.name}` belongs to the bus {wanted.namespace}/{wanted.bus}, "
            f"and this is {bus.namespace}/{bus.bus}"
        )
    return SensorName(bus, manifest.name)


def _dependency(spec: Dependency, scripts: Scripts) -> DependencyPlan:
    gate = compile_gate(spec.filters, spec.filtersLogicalOperator, spec.transform, scripts)
    return DependencyPlan(spec.name, spec.eventSourceName, spec.eventName, gate)


def _trigger(spec: Trigger, condition: Condition) -> TriggerPlan:
    rules = spec.template.rules(condition.names)
    return TriggerPlan(spec.name, condition, rules, has_dlq_trigger=spec.dlqTrigger is not None)


def _all_triggers(manifest: SensorManifest) -> Iterator[tuple[str, TriggerBase]]:
    """What has an action, by the name that records have for it."""
    for trigger in manifest.spec.triggers:
        yield trigger.name, trigger
        if trigger.dlqTrigger is not None:
            yield dlq_name(trigger.name), trigger.dlqTrigger


def _delivery(trigger: TriggerBase) -> Delivery:
    retry, limit = trigger.retry, trigger.rateLimit
    return Delivery(
        at_least_once=trigger.atLeastOnce,
        retry=RetryPolicy(retry.steps, retry.duration.total_seconds(), retry.factor, retry.jitter),
        limit=None if limit is None else RateLimit(limit.requestsPerUnit, limit.seconds),
    )


def _exactly_once_where_possible(
    blueprint: Blueprint, actions: Mapping[str, Action | TransactionalAction]
) -> Blueprint:
    """An action that only writes to the bus's own cluster is done exactly once, whatever its trigger asks for."""
    deliveries = {
        trigger: msgspec.structs.replace(delivery, exactly_once=isinstance(actions[trigger], TransactionalAction))
        for trigger, delivery in blueprint.deliveries.items()
    }
    return msgspec.structs.replace(blueprint, deliveries=deliveries)


class _TopicPartitions(Mapping[str, int]):
    """Partition counts of the bus's topics, asked for when an action needs them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getitem__(self, topic: str) -> int:
        info = self._cluster.describe([topic])[topic]
        if info is None:
            raise KeyError(topic)
        return info.partitions

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, while the block runs.

    It is set by a thread of its own. A handler interrupts whatever the main thread does, which may be to wait for this
    very event: to set it right there would wait for its lock for ever.
    """
    stopped = threading.Event()
    heard: SimpleQueue[bool] = SimpleQueue()  # whose `put` may interrupt itself

    def listen() -> None:
        if heard.get():
            stopped.set()

    listener = threading.Thread(target=listen, name="signals")
    listener.start()
    before = {number: signal.signal(number, lambda *_: heard.put(True)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        heard.put(False)
        listener.join()
