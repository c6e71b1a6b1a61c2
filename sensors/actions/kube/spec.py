"""What the specs of `k8s` and `argoWorkflow` have in common, and how an object comes from one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PrivateAttr

from eventbus.errors import ConfigError
from sensors.actions.base import ActionCall, ActionContext, ActionError
from sensors.actions.kube.cluster import Cluster, Object
from sensors.actions.kube.fetch import Fetcher
from sensors.actions.kube.source import Source
from sensors.actions.patched import Patch, PatchableSpec
from sensors.parameters import Parameter, ParameterError, Parameters
from sensors.patching import forbidden_destination, patch_object
from sensors.spec.base import Flaw
from sensors.spec.fields import Text

_RESOURCE = "source.resource."


class ObjectSpec(PatchableSpec):
    """An action about a Kubernetes object, which `parameters` change."""

    patchable: ClassVar[tuple[str, ...]] = (
        *(f"{_RESOURCE}**", "source.s3.endpoint", "source.s3.bucket.name", "source.s3.bucket.key", "source.url.path"),
        *("source.configmap.key", "source.git.filePath", "source.git.branch", "source.git.tag", "source.git.ref"),
    )

    source: Source
    parameters: Parameters = Field(default=())
    """Values of events that are put into the object, for instance at `spec.arguments.parameters.0.value`."""
    allowParameters: tuple[Annotated[Text, Field(min_length=1)], ...] = ()
    """Destinations that parameters may have though they decide what the object is or may do: `apiVersion`, `kind`,
    `metadata.namespace`, `…serviceAccountName`, `…securityContext`, `…hostPath` and the like. Not in argo-events,
    where an event can change them all."""

    _patches: Parameters = PrivateAttr(default=())

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:  # noqa: ARG003 - `parameters` are about the object, see `warnings`
        return iter(())

    @property
    def patches(self) -> Parameters:
        return tuple(each for each in self._patches if not each.dest.startswith(_RESOURCE))

    @property
    def object_parameters(self) -> Parameters:
        """What is put into the object: by the trigger's parameters, then by the action's own."""
        inside = (each for each in self._patches if each.dest.startswith(_RESOURCE))
        moved = (each.model_copy(update={"dest": each.dest.removeprefix(_RESOURCE)}) for each in inside)
        return (*moved, *self.parameters)

    def patched_by(self, parameters: Parameters) -> Self:
        copy = self.model_copy()
        copy._patches = parameters  # noqa: SLF001 - its own
        return copy

    def warnings(self) -> Iterator[Flaw]:
        for index, parameter in enumerate(self.parameters):
            fault = self._fault(parameter)
            if fault is not None:
                yield Flaw(("parameters", index, "dest"), f"a sensor with this trigger does not start: {fault}")

    def check(self, trigger_kind: str) -> None:
        """Raises `ConfigError` where a parameter may never be applied."""
        for parameter in self.object_parameters:
            fault = self._fault(parameter)
            if fault is not None:
                raise ConfigError(f"`{trigger_kind}.parameters`: {fault}")

    def _fault(self, parameter: Parameter) -> str | None:
        fault = forbidden_destination(parameter.dest, self.source.written or {}, self.allowParameters)
        return None if fault is None else f"{fault}; list it in `allowParameters`"


class ObjectMaker:
    """Makes the object of each call: fetched, where it is kept elsewhere, and with the events' values put in."""

    def __init__(self, spec: ObjectSpec, cluster: Cluster, context: ActionContext) -> None:
        self._spec = spec
        self._patch = Patch(spec)
        self._written = spec.source.written
        self._fetcher = Fetcher(cluster, context.namespace)

    def template(self, call: ActionCall) -> Object:
        """The object as its source has it."""
        if self._written is not None:
            return dict(self._written)
        source = self._patch.spec(call).source
        _check_host(self._spec.source, source)
        return self._fetcher.fetch(source)

    def filled(self, template: Object, call: ActionCall) -> Object:
        """A copy with the values of the events. Raises `ActionError`."""
        parameters: Sequence[Parameter] = self._spec.object_parameters
        try:
            target = patch_object(template, parameters, call.events, self._spec.allowParameters)
        except ParameterError as error:
            raise ActionError(f"the parameters cannot be applied: {error}", retriable=False, sent=False) from None
        assert isinstance(target, dict)  # noqa: S101 - a `dest` is never empty, so the root stays what it is
        return target


def _check_host(ours: Source, theirs: Source) -> None:
    """An event may choose what to read, but not where from: credentials go there, and objects come from there."""
    same = True
    if ours.s3 is not None and theirs.s3 is not None:
        same = ours.s3.host == theirs.s3.host
    if ours.url is not None and theirs.url is not None:
        same = ours.url.origin == theirs.url.origin
    if not same:
        raise ActionError("the parameters lead to another host than the trigger's", retriable=False, sent=False)
