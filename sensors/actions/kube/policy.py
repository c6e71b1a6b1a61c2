"""`policy.k8s`: an action is a success when the object that it made or changed is labelled as the trigger wants it."""

from __future__ import annotations

import time
from collections.abc import Callable

from sensors.actions.base import ActionCall, ActionError
from sensors.actions.kube.cluster import Address, Cluster, Refusal
from sensors.retry import RetryPolicy
from sensors.spec.policy import ResourcePolicy

MAX_SECONDS = 3600.0
"""However many steps a policy has: a worker waits for it all the while."""


class LabelWatch:
    """Looks at an object's labels until they are right. Whatever goes wrong here, the action has been carried out."""

    def __init__(
        self,
        cluster: Cluster,
        policy: ResourcePolicy | None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._policy = policy
        self._sleep = sleep
        self._monotonic = monotonic

    def wait(self, call: ActionCall, address: Address | None) -> None:
        """Raises `ActionError` when the labels do not come and the policy minds."""
        policy = self._policy
        if policy is None or not policy.labels or address is None:
            return
        backoff = policy.backoff
        pauses = RetryPolicy(
            backoff.steps, backoff.duration.total_seconds(), backoff.factor, backoff.jitter, MAX_SECONDS
        )
        began, look = self._monotonic(), 1
        while True:
            pause = pauses.delay(call.id, look, self._monotonic() - began)
            if self._labelled(address, policy, last=pause is None):
                return
            if pause is None:
                break
            self._sleep(pause)
            look += 1
        if policy.errorOnBackoffTimeout:
            wanted = ", ".join(f"{name}={value}" for name, value in policy.labels.items())
            message = f"{address} was not labelled {wanted} after {look} looks"
            raise ActionError(message, retriable=True, sent=True)

    def _labelled(self, address: Address, policy: ResourcePolicy, *, last: bool) -> bool:
        """To be denied the look until the last is no answer, whether the policy minds or not."""
        try:
            target = self._cluster.get(address)
        except ActionError as error:
            denied = isinstance(error, Refusal) and error.denied
            if error.retriable and not (denied and last):
                return False
            message = f"{address} cannot be looked at: {error}"
            raise ActionError(message, retriable=False, sent=True, status=error.status) from None
        metadata = target.get("metadata") or {}
        labels = metadata.get("labels") or {}
        return all(labels.get(name) == value for name, value in policy.labels.items())
