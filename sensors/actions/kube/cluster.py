"""The Kubernetes API as actions use it: objects are plain JSON, and a failure says whether it may have done anything.

The `kubernetes` package knows how to reach the cluster and who we are. Requests go over its connections, but through
our own client, because only that one can tell a request that never left from one whose answer got lost.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import msgspec

from eventbus.kubeaccess import connection_pools, credentials, load_configuration
from sensors.actions.base import ActionError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

    from sensors.actions.http_client import HttpClient

Object: TypeAlias = dict[str, Any]

TIMEOUT_SECONDS = 30
MAX_ANSWER = 16 * 1024 * 1024
_MAX_MESSAGE = 300
_FIELD_MANAGER = "kafka-eventbus"
_JSON = "application/json"
APPLY = "application/apply-patch+yaml"


class ResourceType(msgspec.Struct, frozen=True):
    """A kind of object, and where the API keeps it."""

    api_version: str
    plural: str
    namespaced: bool


class Address(msgspec.Struct, frozen=True):
    """An object's place in the API. Its names may come from events, and must not lead elsewhere."""

    type: ResourceType
    namespace: str
    name: str

    @property
    def collection(self) -> str:
        return collection(self.type, self.namespace)

    @property
    def path(self) -> str:
        return f"{self.collection}/{_segment(self.name, 'name')}"

    def __str__(self) -> str:
        return (
            f"{self.type.plural}/{self.namespace}/{self.name}"
            if self.type.namespaced
            else f"{self.type.plural}/{self.name}"
        )


def collection(type_: ResourceType, namespace: str | None) -> str:
    """Where all objects of a kind are: in one namespace, or, with None, in all."""
    root = "/apis" if "/" in type_.api_version else "/api"
    within = type_.namespaced and namespace is not None
    where = f"/namespaces/{_segment(namespace or '', 'namespace')}" if within else ""
    return f"{root}/{type_.api_version}{where}/{type_.plural}"


def _segment(text: str, what: str) -> str:
    """An empty name would address all objects, and `..` those above."""
    if not text or text in (".", "..") or "/" in text or "%" in text:
        raise ActionError(f"{text[:100]!r} cannot be the {what} of an object", retriable=False, sent=False)
    return quote(text, safe="")


class Refusal(ActionError):
    """The API server answered, and the answer was no.

    Rights may be granted later; and an API server that has just started knows of none yet, and denies everything.
    """

    def __init__(self, code: int, reason: str, message: str, *, sent: bool, retry_after: float | None) -> None:
        self.denied = code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        retriable = self.denied or code in (408, 429) or code >= 500
        phrase = reason or _phrase(code)
        text = f"the cluster answered {code} {phrase}{f': {message}' if message else ''}"
        super().__init__(
            text,
            retriable=retriable,
            sent=sent and not self.denied,
            status=str(code),
            retry_after=retry_after if retriable else None,
        )
        self.code = code
        self.reason = reason


class Cluster:
    """Thread-safe. What it reads changes nothing, so a failure to read has sent nothing."""

    def __init__(self) -> None:
        """Raises `ConfigError` when it is not known how to reach a cluster."""
        self._configuration = load_configuration("the actions `k8s` and `argoWorkflow`")
        self._http = _connect(self._configuration)
        self._types: dict[tuple[str, str], ResourceType] = {}

    def close(self) -> None:
        self._http.close()

    def type_of(self, api_version: str, kind: str) -> ResourceType:
        """Where such objects are kept. The API is asked once for each kind."""
        found = self._types.get((api_version, kind))
        if found is None:
            found = self._types[api_version, kind] = self._discover(api_version, kind)
        return found

    def get(self, address: Address) -> Object:
        return self._request("GET", address.path)

    def list(self, type_: ResourceType, namespace: str | None, query: str) -> list[Object]:
        """Of one namespace, or of all."""
        answer = self._request("GET", f"{collection(type_, namespace)}?{query}")
        items = answer.get("items")
        return items if isinstance(items, list) else []

    def create(self, address: Address, target: Object) -> Object:
        return self._request("POST", address.collection, target)

    def replace(self, address: Address, target: Object) -> Object:
        """Refused with `Conflict` when somebody else has changed it since it was read."""
        return self._request("PUT", address.path, target)

    def patch(self, address: Address, patch: Any, strategy: str, subresource: str = "") -> Object:
        force = "&force=true" if strategy == APPLY else ""
        path = f"{address.path}/{subresource}".rstrip("/")
        return self._request("PATCH", f"{path}?fieldManager={_FIELD_MANAGER}{force}", patch, strategy)

    def delete(self, address: Address) -> None:
        self._request("DELETE", address.path)

    def _discover(self, api_version: str, kind: str) -> ResourceType:
        root = "/api" if "/" not in api_version else "/apis"
        steps = [_segment(each, "apiVersion") for each in api_version.split("/", 1)]
        try:
            answer = self._request("GET", "/".join((root, *steps)))
        except Refusal as refusal:
            if refusal.code != HTTPStatus.NOT_FOUND:
                raise
            answer = {}
        for each in answer.get("resources") or ():
            if each.get("kind") == kind and "/" not in each.get("name", "/"):
                return ResourceType(api_version, each["name"], bool(each.get("namespaced")))
        message = f"the cluster knows no `{kind}` of `{api_version}`; is its custom resource definition installed?"
        raise ActionError(message, retriable=False, sent=False)

    def _request(self, method: str, path: str, body: Any = None, content_type: str = _JSON) -> Object:
        changes = method != "GET"
        headers = {"Accept": _JSON, "User-Agent": "kafka-eventbus", **credentials(self._configuration)}
        if body is not None:
            headers["Content-Type"] = content_type
        content = None if body is None else msgspec.json.encode(body)
        try:
            answer = self._http.request(method, f"{self._configuration.host.rstrip('/')}{path}", headers, content)
        except ActionError as error:
            raise ActionError(f"the cluster: {error}", retriable=True, sent=error.sent and changes) from None
        document = _document(answer.body)
        if 200 <= answer.status < 300:
            if document is None:
                raise ActionError("the cluster's answer is not JSON, or too large", retriable=True, sent=changes)
            return document
        status = document or {}
        raise Refusal(
            answer.status,
            str(status.get("reason") or ""),
            " ".join(str(status.get("message") or "").split())[:_MAX_MESSAGE],
            sent=changes,
            retry_after=_seconds(answer.retry_after),
        )


def _document(body: bytes) -> Object | None:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return document if isinstance(document, dict) else None


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return ""


def _connect(configuration: Configuration) -> HttpClient:
    from sensors.actions.http_client import HttpClient  # noqa: PLC0415

    return HttpClient(TIMEOUT_SECONDS, pools=connection_pools(configuration), max_body=MAX_ANSWER)
