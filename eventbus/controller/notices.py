"""What `kubectl describe` shows of a resource: an Event whenever one of its conditions has become another."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from http import HTTPStatus
from socket import gethostname
from typing import Any

import msgspec

from eventbus.controller.conditions import Condition, worded
from eventbus.controller.objects import Object, Objects
from sensors.actions.base import ActionError
from sensors.actions.kube.cluster import Refusal

_COMPONENT = "eventbus-controller"
_MAX_MESSAGE = 1000
_EXPECTED = frozenset(("WaitingForReplicas", "Checking"))
"""Reasons that are nobody's fault."""

log = logging.getLogger("eventbus.controller")


class Notice(msgspec.Struct, frozen=True):
    """One thing that is to be told."""

    warning: bool
    reason: str
    message: str


class Noticeboard:
    """Writes Events. One that cannot be written is left out: conditions say the same."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def put_up(self, resource: Object, news: Iterable[Notice], now: str) -> None:
        for notice in news:
            try:
                self._put_up(_event(resource, notice, now))
            except ActionError as error:
                log.warning("an Event could not be written: %s", error)

    def _put_up(self, event: Object) -> None:
        """The same again is counted, as Kubernetes itself does it."""
        try:
            self._objects.create(event)
        except Refusal as refusal:
            if refusal.code != HTTPStatus.CONFLICT:
                raise
            metadata = event["metadata"]
            known = self._objects.find("v1", "Event", metadata["namespace"], metadata["name"]) or {}
            self._objects.merge(event, {"count": known.get("count", 1) + 1, "lastTimestamp": event["lastTimestamp"]})


def _event(resource: Object, notice: Notice, now: str) -> Object:
    metadata = resource["metadata"]
    about = f"{metadata['uid']} {notice.reason} {notice.message}"
    named = f"{metadata['name']}.{blake2b(about.encode(), digest_size=8).hexdigest()}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": named, "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": resource["apiVersion"],
            "kind": resource["kind"],
            **{name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")},
        },
        "type": "Warning" if notice.warning else "Normal",
        "reason": notice.reason,
        "message": notice.message[:_MAX_MESSAGE],
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": gethostname(),
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def notices(conditions: Sequence[Condition], before: Iterable[Mapping[str, Any]]) -> Iterator[Notice]:
    """What has become another, each thing once: several conditions often have the same reason."""
    known = {each.get("type"): (each.get("status"), each.get("reason")) for each in before}
    told = set()
    for condition in conditions:
        changed = known.get(condition.type) != (worded(condition.status), condition.reason)
        worth_telling = condition.type == "Ready" or condition.status is not True or condition.type in known
        if changed and worth_telling and condition.reason not in told:
            told.add(condition.reason)
            warning = condition.status is False and condition.reason not in _EXPECTED
            yield Notice(
                warning, condition.reason, condition.message or f"{condition.type} is {worded(condition.status)}"
            )
