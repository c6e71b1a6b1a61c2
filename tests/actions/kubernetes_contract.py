"""What the actions on a cluster promise. Run against our own server and, in `e2e`, against a real API server.

Everything is looked at with the official client, and not with the one that the actions use.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, config

from eventbus.events import Event
from sensors.actions.argo_workflow import ArgoWorkflowAction, ArgoWorkflowSpec
from sensors.actions.base import ActionCall, ActionContext, ActionError
from sensors.actions.k8s import K8sAction, K8sSpec
from sensors.spec.policy import Policy
from tests.actions.conftest import make_call

_ARGO = ("argoproj.io", "v1alpha1")
ACTION_ID = "eventbus.dev/action-id"


class Watched:
    """The cluster as the official client shows it, in one namespace."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self.namespace = namespace
        api = config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call]
        self.core: Any = client.CoreV1Api(api)
        self._custom = client.CustomObjectsApi(api)

    def config_map(self, name: str, data: dict[str, str], **metadata: Any) -> None:
        body = {"metadata": {"name": name, **metadata}, "data": data}
        self.core.create_namespaced_config_map(self.namespace, body)

    def config_maps(self, prefix: str) -> list[Any]:
        found = self.core.list_namespaced_config_map(self.namespace).items
        return [each for each in found if each.metadata.name.startswith(prefix)]

    def data(self, name: str) -> dict[str, str]:
        found: dict[str, str] | None = self.core.read_namespaced_config_map(name, self.namespace).data
        return found or {}

    def make(self, kind: str, name: str, **fields: Any) -> None:
        body = {"apiVersion": "/".join(_ARGO), "kind": kind, "metadata": {"name": name}, **fields}
        body["metadata"] = {**fields.get("metadata", {}), "name": name}
        if kind.startswith("Cluster"):
            self._custom.create_cluster_custom_object(*_ARGO, f"{kind.lower()}s", body)
        else:
            self._custom.create_namespaced_custom_object(*_ARGO, self.namespace, f"{kind.lower()}s", body)

    def workflow(self, name: str) -> dict[str, Any]:
        found = self._custom.get_namespaced_custom_object(*_ARGO, self.namespace, "workflows", name)
        assert isinstance(found, dict)
        return found

    def cluster_templates(self) -> dict[str, dict[str, Any]]:
        found: Any = self._custom.list_cluster_custom_object(*_ARGO, "clusterworkflowtemplates")
        return {each["metadata"]["name"]: each for each in found["items"]}

    def delete_cluster_template(self, name: str) -> None:
        self._custom.delete_cluster_custom_object(*_ARGO, "clusterworkflowtemplates", name)


Make = Callable[..., K8sAction]
MakeWorkflow = Callable[..., ArgoWorkflowAction]


def call_with(data: Any = None, id: str = "action-1") -> ActionCall:
    return make_call(id=id, events={"paid": Event.new("shop", "paid", data or {"total": 12}, type="t", id="e-1")})


def parameter(key: str, dest: str, **more: Any) -> dict[str, Any]:
    return {"src": {"dependencyName": "paid", "dataKey": key}, "dest": dest, **more}


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**named, **metadata}, "data": data or {"a": "1"}}


def workflow(name: str = "", **metadata: Any) -> dict[str, Any]:
    named = {"name": name} if name else {"generateName": "hello-"}
    arguments = {"parameters": [{"name": "message", "value": "hello"}, {"name": "other", "value": "x"}]}
    spec = {"entrypoint": "main", "arguments": arguments}
    return {"apiVersion": "/".join(_ARGO), "kind": "Workflow", "metadata": {**named, **metadata}, "spec": spec}


def named(kind: str, name: str) -> dict[str, Any]:
    return {"source": {"resource": {"apiVersion": "/".join(_ARGO), "kind": kind, "metadata": {"name": name}}}}


class KubernetesActionContract:
    """Inherit it, and give it a fixture `cluster`; KUBECONFIG names that cluster."""

    @pytest.fixture
    def k8s(self, cluster: Watched) -> Iterator[Make]:
        made: list[K8sAction] = []

        def make(policy: dict[str, Any] | None = None, **fields: Any) -> K8sAction:
            made.append(K8sAction(K8sSpec.model_validate(fields), _context(cluster, policy)))
            return made[-1]

        yield make
        for action in made:
            action.close()

    @pytest.fixture
    def argo(self, cluster: Watched) -> Iterator[MakeWorkflow]:
        made: list[ArgoWorkflowAction] = []

        def make(operation: str, policy: dict[str, Any] | None = None, **fields: Any) -> ArgoWorkflowAction:
            spec = ArgoWorkflowSpec.model_validate({"operation": operation, **fields})
            made.append(ArgoWorkflowAction(spec, _context(cluster, policy)))
            return made[-1]

        yield make
        for action in made:
            action.close()

    # --- k8s --------------------------------------------------------------------------------------------------------

    def test_what_is_created_is_recognisable_and_created_once(self, cluster: Watched, k8s: Make) -> None:
        action = k8s(
            source={"resource": config_map("", generateName="note-", labels={"mine": "yes"})},
            parameters=[parameter("total", "data.total")],
        )
        first, second = action.invoke(call_with()), action.invoke(call_with())
        [made] = cluster.config_maps("note-")
        assert first == f"created configmaps/{cluster.namespace}/{made.metadata.name}"
        assert second == f"created before configmaps/{cluster.namespace}/{made.metadata.name}"
        assert made.data == {"a": "1", "total": "12"}
        assert made.metadata.annotations == {ACTION_ID: "action-1"}
        assert made.metadata.labels["mine"] == "yes"
        assert made.metadata.labels["events.argoproj.io/sensor"] == "orders"
        assert made.metadata.labels["events.argoproj.io/trigger"] == "ship"
        action.invoke(call_with(id="action-2"))
        assert len(cluster.config_maps("note-")) == 2

    def test_an_object_that_somebody_else_made_is_not_taken_for_ours(self, cluster: Watched, k8s: Make) -> None:
        cluster.config_map("taken", {"by": "me"})
        with pytest.raises(ActionError, match=r"configmaps/.*/taken is there already, and not made by") as caught:
            k8s(source={"resource": config_map("taken")}).invoke(call_with())
        assert (caught.value.retriable, caught.value.status) == (False, "409")
        assert cluster.data("taken") == {"by": "me"}

    def test_update_merges_and_does_it_once(self, cluster: Watched, k8s: Make) -> None:
        cluster.config_map("settings", {"a": "old", "kept": "yes"})
        action = k8s(operation="update", source={"resource": config_map("settings", {"a": "new"})})
        assert action.invoke(call_with()) == f"updated configmaps/{cluster.namespace}/settings"
        assert cluster.data("settings") == {"a": "new", "kept": "yes"}
        cluster.core.patch_namespaced_config_map("settings", cluster.namespace, {"data": {"a": "newer"}})
        assert action.invoke(call_with()).startswith("updated before ")
        assert cluster.data("settings")["a"] == "newer"

    @pytest.mark.parametrize("operation", ["update", "patch"])
    def test_what_is_not_there_is_created(self, cluster: Watched, k8s: Make, operation: str) -> None:
        action = k8s(operation=operation, source={"resource": config_map(f"new-{operation}")})
        assert action.invoke(call_with()).startswith("created ")
        assert cluster.data(f"new-{operation}") == {"a": "1"}

    def test_a_live_object_is_changed_where_it_is(self, cluster: Watched, k8s: Make) -> None:
        cluster.config_map("live", {"seen": "a", "kept": "yes"})
        append = parameter("name", "data.seen", operation="append")
        action = k8s(
            operation="update",
            liveObject=True,
            source={"resource": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "live"}}},
            parameters=[append],
        )
        assert action.invoke(call_with({"name": "b"})).startswith("updated ")
        assert action.invoke(call_with({"name": "b"})).startswith("updated before ")
        assert action.invoke(call_with({"name": "c"}, id="action-2")).startswith("updated ")
        assert cluster.data("live") == {"seen": "abc", "kept": "yes"}

    @pytest.mark.parametrize("strategy", ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
    def test_patches_are_merged(self, cluster: Watched, k8s: Make, strategy: str) -> None:
        name = strategy.partition("+")[0]
        cluster.config_map(name, {"a": "old", "kept": "yes"})
        source = {"resource": config_map(name, {"a": "new"})}
        action = k8s(operation="patch", patchStrategy=f"application/{strategy}", source=source)
        assert action.invoke(call_with()) == f"patched configmaps/{cluster.namespace}/{name}"
        assert cluster.data(name) == {"a": "new", "kept": "yes"}

    def test_a_json_patch_is_a_list_of_operations(self, cluster: Watched, k8s: Make) -> None:
        cluster.config_map("listed", {"a": "old"})
        operations = [{"op": "replace", "path": "/data/a", "value": "?"}]
        action = k8s(
            operation="patch",
            patchStrategy="application/json-patch+json",
            source={"resource": {**config_map("listed"), "patch": operations}},
            parameters=[parameter("total", "patch.0.value")],
        )
        action.invoke(call_with())
        assert cluster.data("listed") == {"a": "12"}

    @pytest.mark.parametrize("pointer", ["/spec/template/spec/serviceAccountName", "/metadata/namespace"])
    def test_an_event_takes_no_part_in_a_json_patch_of_what_it_must_not_change(
        self, cluster: Watched, k8s: Make, pointer: str
    ) -> None:
        cluster.config_map("guarded", {"a": "old"})
        operations = [{"op": "replace", "path": "/data/a", "value": "?"}]
        action = k8s(
            operation="patch",
            patchStrategy="application/json-patch+json",
            source={"resource": {**config_map("guarded"), "patch": operations}},
            parameters=[parameter("where", "patch.0.path")],
        )
        with pytest.raises(ActionError, match="an event must not take part in a JSON patch") as caught:
            action.invoke(call_with({"where": pointer}))
        assert (caught.value.retriable, caught.value.sent) == (False, False)
        assert cluster.data("guarded") == {"a": "old"}

    def test_a_strategic_patch_of_a_custom_resource_is_refused_for_good(self, cluster: Watched, k8s: Make) -> None:
        cluster.make("Workflow", "strategic", spec={"entrypoint": "main"})
        strategy = "application/strategic-merge-patch+json"
        action = k8s(operation="patch", patchStrategy=strategy, source={"resource": workflow("strategic")})
        with pytest.raises(ActionError, match="the cluster answered 415") as caught:
            action.invoke(call_with())
        assert (caught.value.retriable, caught.value.status) == (False, "415")

    def test_delete_is_content_with_nothing_to_delete(self, cluster: Watched, k8s: Make) -> None:
        cluster.config_map("old", {})
        action = k8s(
            operation="delete", source={"resource": config_map("?")}, parameters=[parameter("n", "metadata.name")]
        )
        assert action.invoke(call_with({"n": "old"})) == f"deleted configmaps/{cluster.namespace}/old"
        assert action.invoke(call_with({"n": "old"})) == f"absent configmaps/{cluster.namespace}/old"

    @pytest.mark.parametrize("name", ["", ".", "..", "../configmaps", "a/b", "%2e%2e"])
    def test_an_event_cannot_lead_to_another_path(self, cluster: Watched, k8s: Make, name: str) -> None:
        cluster.config_map(f"bystander-{len(name)}", {})
        action = k8s(
            operation="delete", source={"resource": config_map("?")}, parameters=[parameter("n", "metadata.name")]
        )
        with pytest.raises(ActionError, match=r"cannot be the name of an object|has no `metadata.name`") as caught:
            action.invoke(call_with({"n": name}))
        assert (caught.value.retriable, caught.value.sent) == (False, False)
        assert cluster.config_maps("bystander-")

    def test_an_object_without_a_namespace_belongs_to_none(self, cluster: Watched, k8s: Make) -> None:
        name = f"shared-{cluster.namespace}"
        template = {
            "apiVersion": "/".join(_ARGO),
            "kind": "ClusterWorkflowTemplate",
            "metadata": {"name": name},
            "spec": {},
        }
        assert k8s(source={"resource": template}).invoke(call_with()) == f"created clusterworkflowtemplates/{name}"
        assert name in cluster.cluster_templates()
        cluster.delete_cluster_template(name)

    @pytest.mark.parametrize(("version", "kind"), [("v1", "Nonsense"), ("nonsense.dev/v1", "Thing")])
    def test_an_unknown_kind_is_told(self, cluster: Watched, k8s: Make, version: str, kind: str) -> None:
        target = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
        with pytest.raises(ActionError, match=f"the cluster knows no `{kind}` of `{version}`") as caught:
            k8s(source={"resource": target}).invoke(call_with())
        assert (caught.value.retriable, caught.value.sent) == (False, False)

    def test_an_invalid_object_is_refused_for_good(self, cluster: Watched, k8s: Make) -> None:
        with pytest.raises(ActionError, match=r"the cluster answered 422 Invalid: .*Not_A_Name") as caught:
            k8s(source={"resource": config_map("Not_A_Name")}).invoke(call_with())
        assert (caught.value.retriable, caught.value.sent, caught.value.status) == (False, True, "422")

    def test_a_config_map_of_the_cluster_is_a_source(self, cluster: Watched, k8s: Make) -> None:
        cluster.config_map("store", {"object": json.dumps(config_map("stored"))})
        k8s(source={"configmap": {"name": "store", "key": "object"}}).invoke(call_with())
        assert cluster.data("stored") == {"a": "1"}
        with pytest.raises(ActionError, match="the config map `store` of the cluster has no key `other`") as caught:
            k8s(source={"configmap": {"name": "store", "key": "other"}}).invoke(call_with())
        assert (caught.value.retriable, caught.value.sent) == (True, False)

    # --- policy -----------------------------------------------------------------------------------------------------

    def test_a_policy_is_content_with_the_right_labels(self, cluster: Watched, k8s: Make) -> None:
        source = {"resource": config_map("right", labels={"phase": "Succeeded", "other": "x"})}
        action = k8s({"labels": {"phase": "Succeeded"}, "errorOnBackoffTimeout": True}, source=source)
        assert action.invoke(call_with()).startswith("created ")

    def test_a_policy_fails_when_the_labels_do_not_come(self, cluster: Watched, k8s: Make) -> None:
        backoff = {"steps": 3, "duration": "1ms"}
        policy = {"labels": {"phase": "Succeeded"}, "backoff": backoff, "errorOnBackoffTimeout": True}
        source = {"resource": config_map("wrong", labels={"phase": "Failed"})}
        with pytest.raises(ActionError, match="wrong was not labelled phase=Succeeded after 3 looks") as caught:
            k8s(policy, source=source).invoke(call_with())
        assert (caught.value.retriable, caught.value.sent) == (True, True)
        cluster.core.patch_namespaced_config_map(
            "wrong", cluster.namespace, {"metadata": {"labels": {"phase": "Succeeded"}}}
        )
        assert k8s(policy, source=source).invoke(call_with()).startswith("created before ")
        forgiving = {**policy, "labels": {"phase": "Other"}, "errorOnBackoffTimeout": False}
        assert k8s(forgiving, source=source).invoke(call_with()).startswith("created before ")

    # --- argoWorkflow -----------------------------------------------------------------------------------------------

    def test_submit_creates_a_workflow_once(self, cluster: Watched, argo: MakeWorkflow) -> None:
        action = argo(
            "submit",
            source={"resource": workflow()},
            parameters=[parameter("total", "spec.arguments.parameters.0.value")],
            args=["-p", "other=changed", "--labels=team=a,tier=b", "--entrypoint", "start", "--priority=7"],
        )
        status = action.invoke(call_with())
        assert action.invoke(call_with()) == status.replace("submitted ", "submitted before ")
        made = cluster.workflow(status.rpartition("/")[2])
        assert made["metadata"]["name"].startswith("hello-")
        assert made["metadata"]["annotations"][ACTION_ID] == "action-1"
        assert made["metadata"]["labels"].items() >= {"team": "a", "tier": "b"}.items()
        assert made["spec"]["entrypoint"] == "start"
        assert made["spec"]["priority"] == 7
        values = {each["name"]: each["value"] for each in made["spec"]["arguments"]["parameters"]}
        assert values == {"message": "12", "other": "changed"}

    @pytest.mark.parametrize(
        ("kind", "label"),
        [
            ("WorkflowTemplate", "workflow-template"),
            ("ClusterWorkflowTemplate", "cluster-workflow-template"),
            ("CronWorkflow", "cron-workflow"),
        ],
    )
    def test_submit_from(self, cluster: Watched, argo: MakeWorkflow, kind: str, label: str) -> None:
        name = f"from-{cluster.namespace}"
        metadata = {"labels": {"team": "a"}, "annotations": {"why": "test"}}
        spec: dict[str, Any] = {"workflowMetadata": metadata, "entrypoint": "main"}
        if kind == "CronWorkflow":
            spec = {"workflowMetadata": metadata, "schedule": "@daily", "workflowSpec": {"entrypoint": "nightly"}}
        cluster.make(kind, name, spec=spec)
        status = argo("submit-from", **named(kind, name), args=["-p", "x=1"]).invoke(call_with())
        made = cluster.workflow(status.rpartition("/")[2])
        assert made["metadata"]["name"].startswith(f"{name[:40]}")
        assert made["metadata"]["labels"]["team"] == "a"
        assert made["metadata"]["labels"][f"workflows.argoproj.io/{label}"] == name
        assert made["metadata"]["annotations"]["why"] == "test"
        assert made["spec"]["arguments"] == {"parameters": [{"name": "x", "value": "1"}]}
        if kind == "CronWorkflow":
            assert made["spec"]["entrypoint"] == "nightly"
            [owner] = made["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["controller"]) == (kind, name, True)
        else:
            scope = {"clusterScope": True} if kind.startswith("Cluster") else {}
            assert made["spec"]["workflowTemplateRef"] == {"name": name, **scope}
        if kind.startswith("Cluster"):
            cluster.delete_cluster_template(name)

    @pytest.mark.parametrize(
        ("operation", "told", "participle"),
        [
            ("suspend", {"suspend": True}, "suspended"),
            ("stop", {"shutdown": "Stop"}, "stopped"),
            ("terminate", {"shutdown": "Terminate"}, "terminated"),
        ],
    )
    def test_a_running_workflow_is_told_to_end(
        self, cluster: Watched, argo: MakeWorkflow, operation: str, told: dict[str, Any], participle: str
    ) -> None:
        name = f"running-{operation}"
        cluster.make("Workflow", name, spec={"entrypoint": "main"}, status={"phase": "Running"})
        action = argo(operation, **named("Workflow", name))
        assert action.invoke(call_with()) == f"{participle} workflows/{cluster.namespace}/{name}"
        assert cluster.workflow(name)["spec"] == {"entrypoint": "main", **told}
        assert action.invoke(call_with(id="action-2")).startswith(f"{participle} before ")

    @pytest.mark.parametrize("operation", ["suspend", "stop", "terminate"])
    def test_what_has_ended_cannot_be_stopped(self, cluster: Watched, argo: MakeWorkflow, operation: str) -> None:
        name = f"ended-{operation}"
        labels = {"workflows.argoproj.io/completed": "true"}
        cluster.make("Workflow", name, metadata={"labels": labels}, spec={"entrypoint": "main"})
        with pytest.raises(ActionError, match="a workflow that has ended cannot be") as caught:
            argo(operation, **named("Workflow", name)).invoke(call_with())
        assert not caught.value.retriable

    @pytest.mark.parametrize("packed", [False, True])
    def test_resume_lets_suspended_steps_go_on(self, cluster: Watched, argo: MakeWorkflow, packed: bool) -> None:
        name = f"suspended-{packed}".lower()
        output = {"name": "answer", "valueFrom": {"supplied": {}, "default": "yes"}}
        nodes = {
            "n1": {"id": "n1", "name": name, "type": "DAG", "phase": "Running"},
            "n2": {"id": "n2", "type": "Suspend", "phase": "Running", "outputs": {"parameters": [output]}},
        }
        status: dict[str, Any] = {"phase": "Running", "nodes": nodes}
        if packed:
            squeezed = base64.b64encode(gzip.compress(json.dumps(nodes).encode())).decode()
            status = {"phase": "Running", "compressedNodes": squeezed}
        cluster.make("Workflow", name, spec={"entrypoint": "main", "suspend": True}, status=status)
        argo("resume", **named("Workflow", name)).invoke(call_with())
        found = cluster.workflow(name)
        assert found["spec"] == {"entrypoint": "main"}
        assert found["status"]["nodes"]["n1"]["phase"] == "Running"
        assert found["status"]["nodes"]["n2"]["phase"] == "Succeeded"
        assert found["status"]["nodes"]["n2"]["outputs"]["parameters"] == [{"name": "answer", "value": "yes"}]
        assert "compressedNodes" not in found["status"]

    def test_resubmit_makes_a_new_one(self, cluster: Watched, argo: MakeWorkflow) -> None:
        labels = {"team": "a", "workflows.argoproj.io/completed": "true", "workflows.argoproj.io/phase": "Failed"}
        spec = {"entrypoint": "main", "shutdown": "Stop", "activeDeadlineSeconds": 0}
        cluster.make("Workflow", "before", metadata={"labels": labels}, spec=spec, status={"phase": "Failed"})
        action = argo("resubmit", **named("Workflow", "before"), args=["-p", "x=1"])
        status = action.invoke(call_with())
        assert action.invoke(call_with()).startswith("resubmitted before ")
        made = cluster.workflow(status.rpartition("/")[2])
        assert made["metadata"]["name"].startswith("before-")
        labels = {name: value for name, value in made["metadata"]["labels"].items() if "events.argoproj.io" not in name}
        assert labels == {"team": "a", "workflows.argoproj.io/resubmitted-from-workflow": "before"}
        assert made["spec"] == {"entrypoint": "main", "arguments": {"parameters": [{"name": "x", "value": "1"}]}}
        assert "status" not in made

    def test_retry_goes_on_where_it_failed(self, cluster: Watched, argo: MakeWorkflow) -> None:
        for pod, node in (("p-good", "good"), ("p-bad", "bad"), ("p-exit", "exit")):
            _make_pod(cluster, pod, "failed-one", node)
        cluster.make(
            "Workflow",
            "failed-one",
            metadata={"labels": {"workflows.argoproj.io/completed": "true"}},
            spec={"entrypoint": "main", "shutdown": "Terminate"},
            status={
                "phase": "Failed",
                "message": "boo",
                "finishedAt": "2026-01-01T00:00:00Z",
                "nodes": _failed_nodes(),
            },
        )
        action = argo("retry", **named("Workflow", "failed-one"))
        assert action.invoke(call_with()) == f"retried workflows/{cluster.namespace}/failed-one"
        assert action.invoke(call_with()).startswith("retried before ")
        found = cluster.workflow("failed-one")
        assert {key: node["phase"] for key, node in found["status"]["nodes"].items()} == {
            "root": "Running",
            "good": "Succeeded",
            "forgiven": "Failed",
            "after": "Succeeded",
        }
        assert found["status"]["nodes"]["root"]["children"] == ["good", "forgiven"]
        assert found["spec"] == {"entrypoint": "main"}
        assert not found["status"].get("phase")
        assert "message" not in found["status"]
        assert "workflows.argoproj.io/completed" not in found["metadata"].get("labels", {})
        pods = cluster.core.list_namespaced_pod(cluster.namespace).items
        assert [each.metadata.name for each in pods if each.metadata.deletion_timestamp is None] == ["p-good"]

    def test_only_what_failed_can_be_retried(self, cluster: Watched, argo: MakeWorkflow) -> None:
        cluster.make("Workflow", "fine", spec={}, status={"phase": "Succeeded"})
        with pytest.raises(ActionError, match="only a failed workflow can be retried, and this one is Succeeded"):
            argo("retry", **named("Workflow", "fine")).invoke(call_with())
        offloaded = {"phase": "Failed", "offloadNodeStatusVersion": "fnv:1"}
        cluster.make("Workflow", "elsewhere", spec={}, status=offloaded)
        with pytest.raises(ActionError, match="kept in Argo's own database"):
            argo("retry", **named("Workflow", "elsewhere")).invoke(call_with())

    def test_a_missing_workflow_is_told(self, cluster: Watched, argo: MakeWorkflow) -> None:
        with pytest.raises(ActionError, match="the cluster answered 404 NotFound") as caught:
            argo("suspend", **named("Workflow", "nowhere")).invoke(call_with())
        assert (caught.value.retriable, caught.value.sent) == (False, False)


def _context(cluster: Watched, policy: dict[str, Any] | None) -> ActionContext:
    applied = Policy() if policy is None else Policy.model_validate({"k8s": policy})
    return ActionContext(
        sensor="orders", namespace=cluster.namespace, bootstrap_servers="", partitions={}, policy=applied
    )


def _make_pod(cluster: Watched, name: str, owner: str, node: str) -> None:
    body = {
        "metadata": {
            "name": name,
            "labels": {"workflows.argoproj.io/workflow": owner},
            "annotations": {"workflows.argoproj.io/node-id": node},
        },
        "spec": {"containers": [{"name": "main", "image": "none"}], "automountServiceAccountToken": False},
    }
    cluster.core.create_namespaced_pod(cluster.namespace, body)


def _failed_nodes() -> dict[str, Any]:
    """A DAG: one step succeeded, one failed with another after it, one was allowed to fail; and an exit handler."""

    def node(key: str, type_: str, phase: str, children: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
        return {"id": key, "name": f"failed-one.{key}", "type": type_, "phase": phase, "children": [*children], **more}

    return {
        "root": {**node("root", "DAG", "Failed", ("good", "bad", "forgiven"), message="boo"), "name": "failed-one"},
        "good": node("good", "Pod", "Succeeded"),
        "bad": node("bad", "Pod", "Failed", ("omitted",)),
        "omitted": node("omitted", "Skipped", "Omitted"),
        "forgiven": node("forgiven", "Pod", "Failed", ("after",)),
        "after": node("after", "Pod", "Succeeded"),
        "exit": {**node("exit", "Pod", "Succeeded"), "name": "failed-one.onExit"},
    }
