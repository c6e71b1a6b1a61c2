"""Who has called. A pod is known to the target by its address, and to its own records by its slot only.

Of one slot there may be two pods at a time, of which one was deleted: what has happened to it excuses only itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from e2e.podchaos.pods import Pod
from sensors.audit.invocations import COMMIT_MS, Call, Difference, Mishap
from sensors.audit.violations import Breach, Violation


class Callers:
    """Of all calls of a run."""

    def __init__(self, pods: Iterable[Pod], calls: Sequence[Call]) -> None:
        self._at: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            if pod.address is not None:
                self._at[pod.address].append(pod)
        self._calls = calls

    def attributed(self) -> list[Call]:
        """Calls with the slots of the pods that have called, instead of their addresses."""
        known = {address: str(pods[0].slot) for address, pods in self._at.items()}
        return [msgspec.structs.replace(call, replica=known.get(call.replica, call.replica)) for call in self._calls]

    def mistaken(self) -> Iterator[str]:
        """Of which it cannot be told who has called. There are more addresses than pods in a run, and they go round."""
        for address, pods in self._at.items():
            slots = {pod.slot for pod in pods}
            if len(slots) > 1:
                yield f"{address} was that of the slots {slots}"

    def unexcused(self, unrecorded: Iterable[Difference], mishaps: Iterable[Mishap]) -> Iterator[Violation]:
        """Calls without a record, of which another pod of the slot was deleted, but not the one that has called."""
        named = {pod.called for pods in self._at.values() for pod in pods}
        said = [mishap for mishap in mishaps if mishap.name not in named]
        called: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self._calls:
            called[call.action].append(call)
        for each in unrecorded:
            if each.mishap in named and not any(self._excused(call, each, said) for call in called[each.action]):
                what = f"the action {each.action} was called without a record, and not by the pod that was deleted"
                yield Violation(
                    invariant="I7",
                    breach=Breach.UNEXPLAINED,
                    what=what,
                    trigger=each.trigger,
                    replica=each.replica,
                )

    def _excused(self, call: Call, difference: Difference, said: Iterable[Mishap]) -> bool:
        """By its own end, or by what it has said itself."""
        own = [pod for pod in self._at[call.replica] if str(pod.slot) == difference.replica]
        deleted = (pod.deleted_ms for pod in own if pod.deleted_ms is not None)
        return any(moment <= call.ended + COMMIT_MS for moment in deleted) or any(
            mishap.replica == difference.replica
            and mishap.began <= call.ended + COMMIT_MS
            and call.began <= mishap.ended
            for mishap in said
        )
