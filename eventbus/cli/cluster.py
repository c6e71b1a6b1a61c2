"""`eventbus crds`, `eventbus rbac`, `eventbus controller`: everything about running on Kubernetes."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventbus.cli.logs import LogFormat
from eventbus.cli.options import BusOption, HealthPort, Manifests, Namespace, Verbose
from eventbus.cli.printing import say

if TYPE_CHECKING:
    from eventbus.controller.objects import Objects
    from eventsources.receiver.server import Server

_LEASE = "eventbus-controller"
_DRAIN_SECONDS = 5.0
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

log = logging.getLogger("eventbus.controller")


def crds() -> None:
    """Print the custom resource definitions of Sensor, EventSource and EventBus."""
    import yaml

    from eventbus.controller.crds import definitions

    typer.echo(yaml.safe_dump_all(definitions(), sort_keys=False, allow_unicode=True, width=120), nl=False)


def rbac(files: Manifests, *, namespace: Namespace = "default", bus: BusOption = "default") -> None:
    """Print the least rights on Kubernetes that sensors and event sources need: one Role each. Works offline."""
    import yaml

    from eventbus.cli.manifests import load_all
    from eventbus.controller.rbac import as_object, rbac_flaws, rules_of
    from eventbus.names import BusName
    from sensors.spec.loader import unplaced
    from sensors.spec.problems import ManifestError

    sensors, sources = load_all(files, BusName(namespace, bus))
    roles = []
    for manifest in [*(each.manifest for each in sensors), *(each.manifest for each in sources)]:
        problems = [unplaced(flaw) for flaw in rbac_flaws(manifest)]
        if problems:
            raise ManifestError(problems)
        metadata = {"name": f"{manifest.name}-{manifest.called.lower()}", "namespace": manifest.namespace}
        rules = [as_object(rule) for rule in rules_of(manifest)]
        roles.append(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}
        )
    say(yaml.safe_dump_all(roles, sort_keys=False).rstrip("\n"))


def controller(
    *,
    image: Annotated[
        str | None,
        typer.Option(
            envvar="EVENTBUS_IMAGE", help="The image of all pods.", show_default="that of the pod this runs in"
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            envvar="EVENTBUS_ONLY_NAMESPACE", help="Look after this namespace.", show_default="all namespaces"
        ),
    ] = None,
    webhook_port: Annotated[
        int | None, typer.Option(help="Serve the validating webhook on this port.", show_default="no webhook")
    ] = None,
    health_port: HealthPort = None,
    log_format: Annotated[LogFormat, typer.Option(help="`json` is one object per line.")] = LogFormat.TEXT,
    verbose: Verbose = False,
) -> None:
    """Make pods of the Sensors and EventSources of a Kubernetes cluster, until SIGTERM or Ctrl-C."""
    from eventbus.cli.logs import set_up_logging
    from eventbus.cli.run import health_server
    from eventbus.controller.loop import Controller
    from eventbus.controller.objects import Objects
    from eventbus.controller.pods import PodSettings, own_settings
    from eventsources.election.elector import Elector
    from eventsources.election.kubernetes import KubernetesLeases
    from sensors.actions.kube.cluster import Cluster
    from sensors.sensor import stop_signals

    set_up_logging(logging.DEBUG if verbose else logging.INFO, log_format)
    home = os.environ.get("EVENTBUS_NAMESPACE") or _own_namespace()
    objects = Objects(Cluster())
    made = Controller(objects, own_settings(objects, home) if image is None else PodSettings(image=image), only)
    server = None if webhook_port is None else _webhook(objects, home, webhook_port)
    election = Elector(KubernetesLeases(_LEASE, home))
    try:
        with stop_signals() as stopped, health_server([made], health_port):
            if server is not None:
                server.start()
            made.run(election, stopped)
    finally:
        election.close()
        if server is not None:
            server.stop()
    log.info("stopped")


def _webhook(objects: Objects, namespace: str, port: int) -> Server:
    from eventbus.controller.admission import admission
    from eventbus.controller.certificates import ensure_certificate, make_trusted
    from eventsources.receiver.server import Server

    certificate = ensure_certificate(objects, namespace)
    if not make_trusted(objects, certificate):
        log.warning("there is no ValidatingWebhookConfiguration `eventbus`: nobody asks the webhook")
    return Server(admission, port, certificate.context(), _DRAIN_SECONDS)


def _own_namespace() -> str:
    return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "default"
