"""An audit on Kubernetes: submitted as documented, its driver and its executors are pods."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from kubernetes import client

from e2e.cluster.sparkimage import SPARK_IMAGE, spark_image
from e2e.conftest import Kubernetes
from e2e.installation import DEPLOY, Kubectl
from e2e.torment import Torment
from e2e.waiting import wait_for
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from eventbus.formats import action_fact
from eventbus.jvm.java import SPARK, find_java

pytestmark = pytest.mark.timeout(900)

_DOCUMENTED = (DEPLOY.parent / "docs" / "audit.md").read_text()
_SMALL = {
    "spark.executor.instances": "1",
    "spark.kubernetes.driver.request.cores": "100m",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.kubernetes.container.image.pullPolicy": "Never",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For two cores, an image that is nowhere to be pulled from, few records and a short life."""


@pytest.fixture(scope="module")
def broker(kubernetes: Kubernetes) -> Iterator[EmbeddedBroker]:
    cluster = kubernetes.cluster()
    cluster.import_image(spark_image)
    with EmbeddedBroker(ephemeral=True, further=cluster.network.listener()) as broker:
        yield broker


def test_an_audit_is_submitted_to_kubernetes(
    kubernetes: Kubernetes, kubernetes_namespace: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name, network = kubernetes_namespace, kubernetes.cluster().network
    with Bus.connect(broker.bootstrap_servers, namespace=name) as bus:
        bus.ensure(3)
        torment = Torment(bus, tmp_path, seed=4)
        try:
            torment.start(1)
            torment.events(100)
            torment.settle()
            fired = Counter(action_fact(record).trigger for record in torment.lab.actions())
        finally:
            torment.close()
    (tmp_path / "sensor.yaml").rename(tmp_path / "orders.yaml")

    kubectl = Kubectl(kubernetes.kubeconfig)
    for line in re.findall(r"^    kubectl (.*)$", _DOCUMENTED, re.MULTILINE):
        words = line.replace("-n shop", f"-n {name}").replace("orders.yaml", str(tmp_path / "orders.yaml"))
        kubectl.kubectl(*words.replace("deploy/", f"{DEPLOY}/").split())
    _submit(
        kubernetes,
        {
            "https://api.example:6443": kubernetes.api().configuration.host,
            "namespace=shop": f"namespace={name}",
            "REGISTRY/eventbus-spark:0.1.0": SPARK_IMAGE,
            "deploy/spark/driver.yaml": str(DEPLOY / "spark" / "driver.yaml"),
            "kafka:9092": network.bootstrap_servers(broker),
        },
        # There are no names for Services in this cluster.
        {**_SMALL, "spark.kubernetes.driver.master": f"https://{network.address}"},
        "--namespace",
        name,
        "--output",
        "json",
    )

    core = kubernetes.core()
    [driver] = core.list_namespaced_pod(name, label_selector="spark-role=driver").items
    said = core.read_namespaced_pod_log(driver.metadata.name, name)
    (tmp_path / "driver.log").write_text(said)
    assert driver.status.phase == "Succeeded", said
    assert "Registered executor" in said
    assert "forbidden" not in said, "deploy/spark/rights.yaml does not grant what Spark asks for"
    told: Mapping[str, Any] = json.loads(said[said.index("\n{") : said.rindex("}") + 1])
    assert told["violations"] == []
    assert {each["trigger"]: each["fired"] for each in told["triggers"]} == fired
    wait_for(lambda: _executors(core, name) == [], "the executors to go")


def _executors(core: client.CoreV1Api, namespace: str) -> list[str]:
    found = core.list_namespaced_pod(namespace, label_selector="spark-role=executor").items
    return [str(pod.metadata.name) for pod in found if pod.metadata]


def _submit(kubernetes: Kubernetes, words: Mapping[str, str], settings: Mapping[str, str], *options: str) -> None:
    """The documented line, with other words in it."""
    [line] = re.findall(r"^    spark-submit (--master k8s:(?:.*\\\n)+.*)$", _DOCUMENTED, re.MULTILINE)
    for documented, own in words.items():
        assert documented in line
        line = line.replace(documented, own)
    arguments = shlex.split(line.replace("\\\n", " "))
    given = [f"--conf={name}={value}" for name, value in settings.items()]
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [str(home / "bin" / "spark-submit"), *given, *arguments, *options],
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(find_java(SPARK).home),
            "KUBECONFIG": str(kubernetes.kubeconfig),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
