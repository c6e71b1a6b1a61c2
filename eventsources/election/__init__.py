"""Which of several processes runs an event source that must run once."""

from __future__ import annotations

import os

from eventsources.election.ports import Election


def take_part(name: str, namespace: str) -> Election:
    """In a Kubernetes cluster by a Lease, elsewhere by a lock file of this machine."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        from eventsources.election.elector import Elector
        from eventsources.election.kubernetes import KubernetesLeases

        return Elector(KubernetesLeases(f"eventsource-{name}", namespace))
    from eventsources.election.filelock import FileElection

    return FileElection(name, namespace)
