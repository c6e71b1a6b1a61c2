"""What all manifests have in common: who they are, and what they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, model_validator

from sensors.spec.base import Flaw, SpecModel
from sensors.spec.fields import CountFromOne, KubernetesName, StringMap
from sensors.spec.problems import Problem

API_VERSIONS = ("argoproj.io/v1alpha1", "eventbus.dev/v1alpha1")


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


class Manifest(SpecModel):
    """A document, as it is written in a YAML file or kept by Kubernetes."""

    called: ClassVar[str]
    """Its `kind`."""
    plural: ClassVar[str]
    """What several of them are called in a sentence."""

    apiVersion: Literal["argoproj.io/v1alpha1", "eventbus.dev/v1alpha1"]
    kind: str
    metadata: Metadata
    spec: SpecModel
    status: Annotated[Any, Field(exclude=True)] = None
    """What a cluster says about it; ignored."""

    _warnings: tuple[Problem, ...] = PrivateAttr(default=())

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
    def warnings(self) -> tuple[Problem, ...]:
        """What is allowed but probably not meant."""
        return self._warnings

    def attach_warnings(self, warnings: Iterable[Problem]) -> None:
        """For whoever read the manifest and knows where everything stood."""
        self._warnings = tuple(warnings)

    def advice(self) -> Iterable[Flaw]:
        """What is allowed but probably not meant, before anybody knows where it stands."""
        return ()
