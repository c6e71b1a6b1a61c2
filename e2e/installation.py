"""The controller, installed as README says: the definitions, then an overlay of the operator's own over `deploy/`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from e2e.cluster.image import PROJECT
from eventbus.errors import MachineError

DEPLOY = Path(__file__).parents[1] / "deploy"
_CONTROLLER = "eventbus-controller"
_PATIENCE = "120s"
_NEVER_PULLED = '[{"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "Never"}]'


class Kubectl:
    """Somebody who has it, and may do everything."""

    def __init__(self, kubeconfig: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", *arguments]
        return subprocess.run(command, input=text, env=self._environment, capture_output=True, text=True, check=False)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """What it prints. Raises `MachineError` with what it says against it."""
        done = self.run(*arguments, text=text)
        if done.returncode:
            raise MachineError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def controller_logs(self, namespace: str) -> str:
        return self.run("logs", "-n", namespace, "-l", f"app.kubernetes.io/name={_CONTROLLER}", "--tail=30").stdout


@contextmanager
def installed(operator: Kubectl, variant: str, namespace: str, overlay: Path) -> Iterator[None]:
    """The directory of that name below `deploy/`, with our own image. All replicas are ready when it begins."""
    crds = subprocess.run([sys.executable, "-m", "eventbus", "crds"], capture_output=True, text=True, check=True)
    operator.kubectl("apply", "-f", "-", text=crds.stdout)
    overlay.mkdir(exist_ok=True)
    (overlay / "kustomization.yaml").write_text(_kustomization(variant, namespace, overlay))
    operator.kubectl("apply", "-k", str(overlay))
    waited = operator.run("rollout", "status", "-n", namespace, f"deployment/{_CONTROLLER}", f"--timeout={_PATIENCE}")
    if waited.returncode:
        described = operator.run("describe", "pods", "-n", namespace).stdout[-3000:]
        raise MachineError(f"the controller does not get ready\n{operator.controller_logs(namespace)}\n{described}")
    try:
        yield
    finally:
        operator.kubectl("delete", "-k", str(overlay), "--wait=false")


def _kustomization(variant: str, namespace: str, overlay: Path) -> str:
    image, _, tag = PROJECT.rpartition(":")
    return yaml.safe_dump(
        {
            "resources": [os.path.relpath(DEPLOY / variant, overlay)],
            "namespace": namespace,
            "images": [{"name": "eventbus", "newName": image, "newTag": tag}],
            "patches": [{"target": {"kind": "Deployment"}, "patch": _NEVER_PULLED}],
        }
    )
