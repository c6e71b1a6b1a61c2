"""What is in `deploy/` fits what the program does: names, labels, ports, rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eventbus.controller.crds import definitions
from eventbus.controller.objects import Object
from eventbus.controller.workloads import KINDS, objects_of
from eventbus.names import BusName, SensorName, Stage
from tests.controller.resources import sensor, source, workload

_DEPLOY = Path(__file__).parents[2] / "deploy"


def _documents(name: str) -> list[Object]:
    return list(yaml.safe_load_all((_DEPLOY / name).read_text()))


def _pod() -> Object:
    [made] = [each for each in objects_of(workload(sensor())) if each["kind"] == "StatefulSet"]
    template: Object = made["spec"]["template"]
    return template


def test_the_example_of_a_network_policy_is_about_our_pods_and_their_port() -> None:
    [policy] = _documents("examples/network-policy.yaml")
    pod = _pod()
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = [port["name"] for container in pod["spec"]["containers"] for port in container["ports"]]
    assert [each["port"] for each in policy["spec"]["ingress"][0]["ports"]] == ports


def test_the_example_of_scaling_names_groups_and_topics_as_the_sensor_does() -> None:
    [scaled] = _documents("examples/scaled-object.yaml")
    target, namespace = scaled["spec"]["scaleTargetRef"], scaled["metadata"]["namespace"]
    name = SensorName(BusName(namespace), target["name"])
    triggers = [each["metadata"] for each in scaled["spec"]["triggers"]]
    assert [(each["consumerGroup"], each["topic"]) for each in triggers] == [
        (name.group(stage), name.input_topic(stage)) for stage in (Stage.MATCH, Stage.INVOKE)
    ]
    [defined] = [each for each in definitions() if each["spec"]["names"]["kind"] == target["kind"]]
    [version] = defined["spec"]["versions"]
    assert target["apiVersion"] == f"{defined['spec']['group']}/{version['name']}"
    assert "scale" in version["subresources"]


def _granted() -> list[Object]:
    [role] = [each for each in _documents("base/rights.yaml") if each["kind"] == "Role"]
    found: list[Object] = role["rules"]
    return found


def _may(verb: str, group: str, resource: str) -> bool:
    return any(
        verb in rule["verbs"] and group in rule["apiGroups"] and resource in rule["resources"] for rule in _granted()
    )


@pytest.mark.parametrize(("api_version", "kind"), sorted(KINDS))
def test_the_controller_may_do_what_it_does_with_what_it_makes(api_version: str, kind: str) -> None:
    group, plural = api_version.rpartition("/")[0], f"{kind.lower()}s"
    for verb in ("get", "create", "patch", "delete"):
        assert _may(verb, group, plural), f"{verb} {plural}"


_ACTIONS: list[Object] = [
    {"k8s": {"source": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}}}},
    {"k8s": {"source": {"resource": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}}}},
]


@pytest.mark.parametrize("written", [*(sensor(action=each) for each in _ACTIONS), source()])
def test_the_controller_may_give_away_what_usual_resources_need(written: dict[str, Any]) -> None:
    needed = [rule for each in objects_of(workload(written)) if each["kind"] == "Role" for rule in each["rules"]]
    assert needed
    for rule in needed:
        for verb in rule["verbs"]:
            for resource in rule["resources"]:
                assert _may(verb, rule["apiGroups"][0], resource), f"{verb} {resource}"
