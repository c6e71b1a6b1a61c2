"""Audit and backtest on a Spark cluster, of a master and workers in processes of their own: the same commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from e2e.torment import Torment
from e2e.waiting import wait_for
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from eventbus.broker.ports import HOST, free_ports
from eventbus.formats import action_fact
from eventbus.jvm.jars import ensure_jars
from eventbus.jvm.java import SPARK, find_java
from eventbus.ports import Record
from sensors.spark.session import CONNECTOR

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[1]
WORKERS = 2
EVENTBUS = str(Path(sys.executable).parent / "eventbus")
HOME = Path(pyspark.__file__).parent
_SETTINGS = """
spark.sql.shuffle.partitions 4
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1
"""
"""For a small cluster, few records and a short life: what Spark compiles would hardly be used."""
SPARK_CLASS, SPARK_SUBMIT = str(HOME / "bin" / "spark-class"), str(HOME / "bin" / "spark-submit")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    settings = tmp_path_factory.mktemp("settings")
    (settings / "spark-defaults.conf").write_text(_SETTINGS)
    own = {"SPARK_HOME": str(HOME), "SPARK_CONF_DIR": str(settings), "SPARK_LOCAL_IP": HOST}
    return {**os.environ, **own, "JAVA_HOME": str(find_java(SPARK).home), "PYSPARK_PYTHON": sys.executable}


@contextmanager
def daemon(kind: str, log: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[None]:
    command = [SPARK_CLASS, f"org.apache.spark.deploy.{kind}", "--host", HOST, "--webui-port", "0"]
    with (
        log.open("wb") as out,
        subprocess.Popen([*command, *arguments], stdout=out, stderr=out, env=environment) as it,
    ):
        try:
            yield
        finally:
            it.kill()


@pytest.fixture(scope="module")
def master(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("spark")
    [port] = free_ports(1)
    url, log = f"spark://{HOST}:{port}", folder / "master.log"
    with ExitStack() as end:
        end.enter_context(daemon("master.Master", log, environment, "--port", str(port)))
        wait_for(lambda: b"I have been elected leader" in log.read_bytes(), "Spark's master")
        for number in range(WORKERS):
            room = "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")
            end.enter_context(daemon("worker.Worker", folder / f"worker-{number}.log", environment, *room, url))
        wait_for(lambda: log.read_bytes().count(b"Registering worker") == WORKERS, "Spark's workers")
        yield url


class Worked:
    """A sensor that has worked, and whoever asks about it."""

    def __init__(self, manifest: Path, bus: Bus, actions: Iterable[Record], environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._asked = [str(manifest), "--bootstrap-servers", bus.bootstrap_servers, "--namespace", bus.name.namespace]
        self.fired = Counter(action_fact(record).trigger for record in actions)

    def told(self, program: Sequence[str], command: str, *options: str) -> Mapping[str, Any]:
        arguments = [*program, command, *self._asked, "--output", "json", *options]
        answer = subprocess.run(arguments, env=self._environment, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
        told: dict[str, Any] = json.loads(answer.stdout)
        return told


@pytest.fixture(scope="module")
def worked(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    folder = tmp_path_factory.mktemp("worked")
    with EmbeddedBroker(ephemeral=True) as broker, Bus.connect(broker.bootstrap_servers, namespace="cluster") as bus:
        bus.ensure(3)
        torment = Torment(bus, folder, seed=3)
        try:
            torment.start(2)
            torment.events(200)
            torment.settle()
            yield Worked(folder / "sensor.yaml", bus, torment.lab.actions(), environment)
        finally:
            torment.close()


def fired(told: Mapping[str, Any]) -> dict[str, int]:
    return {each["trigger"]: each["fired"] for each in told["triggers"]}


def test_an_audit_is_submitted_to_a_cluster(worked: Worked, master: str, tmp_path: Path) -> None:
    [script] = re.findall(r"echo '(.*)' > submitted\.py", (ROOT / "docs" / "audit.md").read_text())
    (tmp_path / "submitted.py").write_text(script)
    jars = ",".join(map(str, ensure_jars(CONNECTOR)))
    submitted = [SPARK_SUBMIT, "--master", master, "--jars", jars, str(tmp_path / "submitted.py")]
    told = worked.told(submitted, "audit")
    assert told["violations"] == []
    assert fired(told) == worked.fired


def test_a_backtest_runs_on_a_cluster(worked: Worked, master: str) -> None:
    told = worked.told([EVENTBUS], "backtest", "--from", "triggers", "--master", master)
    joined = {name: count for name, count in worked.fired.items() if name != "any"}
    assert {name: fired(told)[name] for name in joined} == joined
