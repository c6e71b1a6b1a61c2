"""The actions a trigger can have. A new action is one file here and one line in `ACTIONS`.

Other packages add actions, too: see `sensors.plugins`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sensors.actions.argo_workflow import ArgoWorkflowAction, ArgoWorkflowSpec
from sensors.actions.aws_lambda import LambdaAction, LambdaSpec
from sensors.actions.base import Action, ActionContext, SpecModel, TransactionalAction
from sensors.actions.custom import CustomAction, CustomSpec
from sensors.actions.email import EmailAction, EmailSpec
from sensors.actions.http import HttpAction, HttpSpec
from sensors.actions.k8s import K8sAction, K8sSpec
from sensors.actions.kafka import KafkaSpec, make_kafka_action
from sensors.actions.log import LogAction, LogSpec
from sensors.actions.nats import NatsAction, NatsSpec
from sensors.actions.python import PythonAction, PythonSpec
from sensors.actions.slack import SlackAction, SlackSpec
from sensors.extras import lacking
from sensors.plugins import Plugins
from sensors.spec.policy import PolicyKind


class ActionKind(NamedTuple):
    """What a manifest may say about an action, and how it is made from that."""

    spec: type[SpecModel]
    make: Callable[[Any, ActionContext], Action | TransactionalAction]
    in_manifests: bool = True
    """False: only a program that uses the library can have it."""
    policy: PolicyKind | None = None
    """Which policy a trigger with this action may have; the action finds it in its context."""
    extra: str | None = None
    """What to install beside this package, as one of its extras."""
    modules: tuple[str, ...] = ()
    """The modules that this brings."""

    def lacking(self) -> str | None:
        """What has to be installed before the action can be used."""
        return lacking(self.extra, self.modules)


ACTIONS: dict[str, ActionKind] = {
    "http": ActionKind(HttpSpec, HttpAction, policy="status"),
    "kafka": ActionKind(KafkaSpec, make_kafka_action),
    "log": ActionKind(LogSpec, LogAction),
    "k8s": ActionKind(K8sSpec, K8sAction, policy="k8s"),
    "argoWorkflow": ActionKind(ArgoWorkflowSpec, ArgoWorkflowAction, policy="k8s"),
    "slack": ActionKind(SlackSpec, SlackAction),
    "email": ActionKind(EmailSpec, EmailAction),
    "nats": ActionKind(NatsSpec, NatsAction, extra="nats", modules=("nats", "nkeys")),
    "awsLambda": ActionKind(LambdaSpec, LambdaAction, policy="status", extra="aws", modules=("botocore",)),
    "custom": ActionKind(CustomSpec, CustomAction, extra="grpc", modules=("grpc", "google.protobuf")),
    "python": ActionKind(PythonSpec, PythonAction, in_manifests=False),
}

REFUSED: dict[str, str] = {
    "azureEventHubs": "`azureEventHubs` is not supported; Event Hubs speaks Kafka: use `kafka` with `url` and `sasl`",
    "azureServiceBus": "`azureServiceBus` is not supported; use `http` with Service Bus's REST API, or `custom`",
    "openWhisk": "`openWhisk` is not supported; use `http`: every action of OpenWhisk has an address to POST to",
    "pulsar": "`pulsar` is not supported; use `custom` with a server that writes to Pulsar",
}
"""Kinds of actions that cannot be had, and what to do about it."""

PLUGINS = Plugins(
    "eventbus.actions",
    "action",
    "a trigger",
    frozenset(("name", "conditions", "conditionsReset", "action")),
    ActionKind,
    SpecModel,
)
_added, _broken = PLUGINS.load(ACTIONS)
REFUSED = {kind: why for kind, why in REFUSED.items() if kind not in _added} | _broken
ACTIONS |= _added


def make_action(kind: str, spec: SpecModel, context: ActionContext) -> Action | TransactionalAction:
    """Make a trigger's action ready to be invoked. Raises `ConfigError` when it cannot work here."""
    return ACTIONS[kind].make(spec, context)
