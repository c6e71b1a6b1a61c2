"""The actions a trigger can have. A new action is one file here and one line in `ACTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sensors.actions.argo_workflow import ArgoWorkflowAction, ArgoWorkflowSpec
from sensors.actions.base import Action, ActionContext, SpecModel, TransactionalAction
from sensors.actions.http import HttpAction, HttpSpec
from sensors.actions.k8s import K8sAction, K8sSpec
from sensors.actions.kafka import KafkaSpec, make_kafka_action
from sensors.actions.log import LogAction, LogSpec
from sensors.actions.python import PythonAction, PythonSpec
from sensors.spec.policy import PolicyKind


class ActionKind(NamedTuple):
    """What a manifest may say about an action, and how it is made from that."""

    spec: type[SpecModel]
    make: Callable[[Any, ActionContext], Action | TransactionalAction]
    in_manifests: bool = True
    """False: only a program that uses the library can have it."""
    policy: PolicyKind | None = None
    """Which policy a trigger with this action may have; the action finds it in its context."""


ACTIONS: dict[str, ActionKind] = {
    "http": ActionKind(HttpSpec, HttpAction, policy="status"),
    "kafka": ActionKind(KafkaSpec, make_kafka_action),
    "log": ActionKind(LogSpec, LogAction),
    "k8s": ActionKind(K8sSpec, K8sAction, policy="k8s"),
    "argoWorkflow": ActionKind(ArgoWorkflowSpec, ArgoWorkflowAction, policy="k8s"),
    "python": ActionKind(PythonSpec, PythonAction, in_manifests=False),
}


def make_action(kind: str, spec: SpecModel, context: ActionContext) -> Action | TransactionalAction:
    """Make a trigger's action ready to be invoked. Raises `ConfigError` when it cannot work here."""
    return ACTIONS[kind].make(spec, context)
