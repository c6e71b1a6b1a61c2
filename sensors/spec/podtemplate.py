"""How a sensor's pods are to look. Kubernetes' own objects are passed on as they are; only their shape is checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from pydantic import Field, StrictInt

from sensors.spec.base import Flaw, SpecModel
from sensors.spec.fields import KubernetesName, StringMap, Text
from sensors.spec.restricted import template_flaws

KubernetesObject: TypeAlias = dict[Text, Any]
"""One of Kubernetes' own objects."""


class PodMetadata(SpecModel):
    """What the pods carry beside the labels they need."""

    labels: StringMap = Field(default={})
    """Further labels of the pods."""
    annotations: StringMap = Field(default={})
    """Further annotations of the pods."""


class PodContainer(SpecModel):
    """Changes to the sensor's container."""

    resources: KubernetesObject | None = None
    """Requests and limits."""
    imagePullPolicy: Text | None = None
    """When the image is pulled."""
    securityContext: KubernetesObject | None = None
    """What the container may do."""
    volumeMounts: tuple[KubernetesObject, ...] = ()
    """Where volumes are mounted."""
    env: tuple[KubernetesObject, ...] = ()
    """Environment variables."""
    envFrom: tuple[KubernetesObject, ...] = ()
    """Where more of them come from."""


class PodTemplate(SpecModel):
    """How the sensor's pods are to look, on Kubernetes. It changes nothing about what the sensor does."""

    metadata: PodMetadata | None = None
    serviceAccountName: KubernetesName | None = None
    """As whom the pods act: what `k8s` and `argoWorkflow` actions may do is what it may do."""
    container: PodContainer | None = None
    volumes: tuple[KubernetesObject, ...] = ()
    """What containers can mount: secrets, config maps."""
    securityContext: KubernetesObject | None = None
    """What the pods may do."""
    nodeSelector: StringMap = Field(default={})
    """Labels of the nodes they may run on."""
    tolerations: tuple[KubernetesObject, ...] = ()
    """Taints of nodes that they accept."""
    imagePullSecrets: tuple[KubernetesObject, ...] = ()
    """Secrets for the image registry."""
    priorityClassName: Text | None = None
    """How important they are."""
    priority: StrictInt | None = None
    """How important they are, as a number."""
    affinity: KubernetesObject | None = None
    """Which nodes and neighbours they prefer."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        return template_flaws(data)
