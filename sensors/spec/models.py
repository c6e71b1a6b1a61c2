"""What a Sensor manifest may contain: argo-events' fields, as far as they work here, and a few of our own.

Fields that argo-events has and we do not are named in `not_yet`, so that they are refused by name instead of being
taken for misspellings. Rules between fields are in `sensors.spec.checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from pydantic import Field, PrivateAttr, StrictInt, create_model, model_validator

from eventbus.names import BusName, SensorName
from sensors.actions import ACTIONS, REFUSED
from sensors.actions.patched import PatchableSpec
from sensors.conditions import Condition, parse
from sensors.filters.spec import Filters, Operator, Transform
from sensors.parameters import Parameters
from sensors.spec.base import Flaw, SpecModel
from sensors.spec.checks import naming_flaws, policy_flaws, script_flaws, spec_flaws, template_flaws, trigger_flaws
from sensors.spec.fields import Bool, CountFromOne, EventReference, KubernetesName, PartName, StringMap
from sensors.spec.joins import JoinSpec, join_flaws
from sensors.spec.podtemplate import PodTemplate
from sensors.spec.policy import Backoff, Policy, RateLimit
from sensors.spec.problems import Problem

KIND = "Sensor"
Mode: TypeAlias = Literal["atMostOnce", "atLeastOnce"]


class Dependency(SpecModel):
    """An event that triggers can wait for."""

    name: PartName
    """What conditions and parameters call it."""
    eventSourceName: EventReference
    """The event's `source`; for events of an EventSource, its name."""
    eventName: EventReference
    """The event's `subject`, as EventSources set it; or its `type`."""
    transform: Transform | None = None
    filters: Filters | None = None
    filtersLogicalOperator: Operator = "and"
    """Whether all kinds of filters must let the event pass, or one of them."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        return script_flaws(data)


class RetryStrategy(Backoff):
    """When a failed action is tried again. Without one it is tried once."""


class TriggerTemplateBase(JoinSpec):
    """What every trigger has, whatever its action."""

    refused: ClassVar[Mapping[str, str]] = REFUSED
    hidden: ClassVar[frozenset[str]] = frozenset(
        {"policy", *(kind for kind, action in ACTIONS.items() if not action.in_manifests)}
    )

    policy: Policy | None = None
    """The trigger's, which some of argo-events' examples have here."""

    @classmethod
    def flaws(cls, data: Any) -> Iterable[Flaw]:
        return chain(template_flaws(data, cls.not_yet | cls.refused.keys()), join_flaws(data))

    @property
    def action(self) -> tuple[str, SpecModel]:
        """The kind of the one action, and its spec."""
        return next((kind, spec) for kind in ACTIONS if (spec := getattr(self, kind)) is not None)


if TYPE_CHECKING:
    TriggerTemplate = TriggerTemplateBase
else:
    TriggerTemplate = create_model(
        "TriggerTemplate",
        __base__=TriggerTemplateBase,
        __doc__="What a trigger does, and when. It has exactly one action.",
        **{kind: (action.spec | None, None) for kind, action in ACTIONS.items()},
    )


class TriggerBase(SpecModel):
    """What a trigger and its `dlqTrigger` have in common."""

    template: TriggerTemplate
    parameters: Parameters = Field(default=())
    """Values of events that are put into the template before every call: `dest` is `http.url`, for instance."""
    policy: Policy | None = None
    """When the action counts as a success. Some of argo-events' examples have it in `template`; that means the same."""
    retryStrategy: RetryStrategy | None = None
    rateLimit: RateLimit | None = None
    atLeastOnce: Bool = False
    """True: repeat the action rather than lose it. False: lose it rather than repeat it."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from trigger_flaws(data)
        yield from policy_flaws(data)

    @property
    def action(self) -> tuple[str, SpecModel]:
        """The kind of the action, and its spec with the trigger's parameters before its own."""
        kind, spec = self.template.action
        mine = [each for each in self.parameters if each.dest != "name"]
        if not mine or not isinstance(spec, PatchableSpec):
            return kind, spec
        moved = tuple(each.model_copy(update={"dest": each.dest.removeprefix(f"{kind}.")}) for each in mine)
        return kind, spec.patched_by(moved)

    @property
    def success(self) -> Policy:
        """The policy that applies, wherever it is written."""
        return self.policy or self.template.policy or Policy()

    @property
    def mode(self) -> Mode:
        return "atLeastOnce" if self.atLeastOnce else "atMostOnce"

    @property
    def retry(self) -> RetryStrategy:
        """The strategy that applies: without one, a single attempt."""
        return self.retryStrategy or RetryStrategy(steps=1)


class DlqTrigger(TriggerBase):
    """What is done when an action is given up. See [dlqTrigger](actions.md#dlqtrigger)."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        if isinstance(data, Mapping) and "dlqTrigger" in data:
            message = "a `dlqTrigger` cannot have one of its own: what it gives up is in the dead-letter topic"
            yield Flaw(("dlqTrigger",), message, about_key=True)

    @model_validator(mode="before")
    @classmethod
    def _forget(cls, data: Any) -> Any:
        """What is a flaw already is not an unknown field, too."""
        return {name: value for name, value in data.items() if name != "dlqTrigger"} if isinstance(data, dict) else data


class Trigger(TriggerBase):
    """An action and the condition that causes it."""

    dlqTrigger: DlqTrigger | None = None

    @property
    def name(self) -> str:
        return self.template.name


class SensorSpec(SpecModel):
    """Which events to wait for, and what to do about them."""

    dependencies: Annotated[tuple[Dependency, ...], Field(min_length=1)]
    triggers: Annotated[tuple[Trigger, ...], Field(min_length=1)]
    eventBusName: KubernetesName = "default"
    replicas: CountFromOne = 1
    startFrom: Literal["latest", "earliest"] = "latest"
    """Where a sensor that has never run begins: with events from now on, or with the oldest still there."""
    loggingFields: StringMap = Field(default={})
    """Every log line of the sensor carries these fields: as members of JSON lines, at the end of others."""
    template: PodTemplate | None = None
    revisionHistoryLimit: Annotated[StrictInt, Field(ge=0)] | None = None
    """How many former revisions Kubernetes keeps of the sensor's Deployment."""
    errorOnFailedRound: Bool = False
    """Does nothing, as in argo-events. An action that fails is retried, then in the dead-letter topic."""

    without_meaning: ClassVar[frozenset[str]] = frozenset(
        {"replicas", "loggingFields", "template", "revisionHistoryLimit", "errorOnFailedRound"}
    )
    """Two specs that differ only in these do the same."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        return spec_flaws(data)

    @cached_property
    def conditions(self) -> Mapping[str, Condition]:
        """The condition of each trigger, by the trigger's name."""
        names = [dependency.name for dependency in self.dependencies]
        return {trigger.name: parse(trigger.template.conditions, names) for trigger in self.triggers}


class Metadata(SpecModel):
    """Kubernetes' object metadata. What only a cluster writes is accepted and forgotten."""

    from_cluster: ClassVar[frozenset[str]] = frozenset(
        {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"}
        | {"managedFields", "ownerReferences", "finalizers", "selfLink"}
    )

    name: KubernetesName
    namespace: KubernetesName = "default"
    labels: StringMap = Field(default={})
    annotations: StringMap = Field(default={})
    generation: CountFromOne = 1
    """Counts the changes of the spec; of two replicas with different ones, the higher takes over."""

    @model_validator(mode="before")
    @classmethod
    def _forget(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        forgotten = cls.from_cluster | {"generateName"}  # which is a flaw already
        return {name: value for name, value in data.items() if name not in forgotten}

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if isinstance(data, Mapping) and "generateName" in data:
            message = "`generateName` is not possible: a sensor's topics need a fixed `name`"
            yield Flaw(("generateName",), message, about_key=True)


class SensorManifest(SpecModel):
    """A Sensor, as it is written in a YAML file or kept by Kubernetes."""

    apiVersion: Literal["argoproj.io/v1alpha1", "eventbus.dev/v1alpha1"]
    kind: Literal["Sensor"]
    metadata: Metadata
    spec: SensorSpec
    status: Annotated[Any, Field(exclude=True)] = None
    """What a cluster says about the sensor; ignored."""

    _warnings: tuple[Problem, ...] = PrivateAttr(default=())

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        return naming_flaws(data)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def generation(self) -> int:
        return self.metadata.generation

    @property
    def full_name(self) -> SensorName:
        """The sensor on its bus: what its topics and groups are named after."""
        return SensorName(BusName(self.namespace, self.spec.eventBusName), self.name)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is allowed but probably not meant."""
        return self._warnings

    def attach_warnings(self, warnings: Iterable[Problem]) -> None:
        """For whoever read the manifest and knows where everything stood."""
        self._warnings = tuple(warnings)

    def digest(self) -> str:
        """Stands for what the spec means: defaults, spelling and order do not matter, and neither do `without_meaning`.

        Fields that have their default are left out, so that a release that adds a field changes no digest.
        """
        spec = self.spec.model_dump(mode="json", exclude_defaults=True, exclude=set(SensorSpec.without_meaning))
        for trigger in spec["triggers"]:
            trigger["template"]["conditions"] = str(self.spec.conditions[trigger["template"]["name"]])
        spec["triggers"].sort(key=lambda trigger: trigger["template"]["name"])
        spec["dependencies"].sort(key=lambda dependency: dependency["name"])
        return blake2b(msgspec.json.encode(spec, order="sorted"), digest_size=16).hexdigest()
