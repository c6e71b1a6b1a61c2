"""Audit and backtest on a Spark cluster of its own processes: the same commands, and the same answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
from eventbus.jvm.jars import ensure_jars
from eventbus.jvm.java import SPARK, find_java
from sensors.spark.session import CONNECTOR

pytestmark = pytest.mark.timeout(600)

WORKERS = 2
BIN = Path(sys.executable).parent
HOME = Path(pyspark.__file__).parent
SPARK_CLASS, SPARK_SUBMIT = str(HOME / "bin" / "spark-class"), str(HOME / "bin" / "spark-submit")
NOT_THE_SAME_TWICE = ("since", "until", "seconds", "took")


def environment() -> dict[str, str]:
    java = {"JAVA_HOME": str(find_java(SPARK).home), "SPARK_LOCAL_IP": HOST, "SPARK_HOME": str(HOME)}
    return {**os.environ, **java, "PYSPARK_PYTHON": sys.executable}


@contextmanager
def daemon(kind: str, log: Path, *arguments: str) -> Iterator[None]:
    command = [SPARK_CLASS, f"org.apache.spark.deploy.{kind}", "--host", HOST, "--webui-port", "0"]
    with (
        log.open("wb") as out,
        subprocess.Popen([*command, *arguments], stdout=out, stderr=out, env=environment()) as it,
    ):
        try:
            yield
        finally:
            it.kill()


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("spark")
    [port] = free_ports(1)
    url, log = f"spark://{HOST}:{port}", folder / "master.log"
    with ExitStack() as end:
        end.enter_context(daemon("master.Master", log, "--port", str(port)))
        wait_for(lambda: b"I have been elected leader" in log.read_bytes(), "Spark's master")
        for number in range(WORKERS):
            room = "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")
            end.enter_context(daemon("worker.Worker", folder / f"worker-{number}.log", *room, url))
        wait_for(lambda: log.read_bytes().count(b"Registering worker") == WORKERS, "Spark's workers")
        yield url


class Worked:
    """A sensor that has worked, and whoever asks about it."""

    def __init__(self, manifest: Path, bus: Bus) -> None:
        self._asked = [str(manifest), "--bootstrap-servers", bus.bootstrap_servers, "--namespace", bus.name.namespace]

    def told(self, command: str, *options: str, by: Sequence[str] = ()) -> Mapping[str, Any]:
        arguments = [*by, str(BIN / "eventbus"), command, *self._asked, "--output", "json", *options]
        answer = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
        told: dict[str, Any] = json.loads(answer.stdout)
        return {name: each for name, each in told.items() if name not in NOT_THE_SAME_TWICE}


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    folder = tmp_path_factory.mktemp("worked")
    with EmbeddedBroker(ephemeral=True) as broker, Bus.connect(broker.bootstrap_servers, namespace="cluster") as bus:
        bus.ensure(3)
        torment = Torment(bus, folder, seed=3)
        try:
            torment.start(2)
            torment.events(200)
            torment.settle()
        finally:
            torment.close()
        yield Worked(folder / "sensor.yaml", bus)


@pytest.mark.parametrize("command", ["audit", "backtest"])
def test_a_cluster_comes_to_what_this_machine_comes_to(command: str, worked: Worked, master: str) -> None:
    assert worked.told(command, "--master", master) == worked.told(command)


def test_what_is_submitted_comes_to_the_same(worked: Worked, master: str) -> None:
    jars = ",".join(map(str, ensure_jars(CONNECTOR)))
    submit = [SPARK_SUBMIT, "--master", master, "--jars", jars]
    assert worked.told("audit", by=submit) == worked.told("audit")
