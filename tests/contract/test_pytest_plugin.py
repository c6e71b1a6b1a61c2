"""The fixtures as a user's project gets them: in a pytest run of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FAKE_BROKER = """
import eventbus.broker

class FakeBroker:
    bootstrap_servers = "embedded:9092"
    def __init__(self, *, ephemeral): assert ephemeral
    def start(self): pass
    def stop(self): print("stopped")

eventbus.broker.EmbeddedBroker = FakeBroker
"""
SHOW_SERVERS = """
def test_servers(kafka_bootstrap_servers): print("servers:", kafka_bootstrap_servers)
"""


def run(project: Path, test: str, conftest: str = "", *, all_plugins: bool = False, **environment: str) -> str:
    """The output of pytest in a project with one test file. Without all the other plugins it starts sooner."""
    (project / "test_user.py").write_text(test)
    (project / "conftest.py").write_text(conftest)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"KAFKA_BOOTSTRAP_SERVERS", "EVENTBUS_TEST_BROKER"}
    }
    command = [sys.executable, "-m", "pytest", "-s", "--strict-markers", "-W", "error", "-p", "no:cacheprovider"]
    if not all_plugins:
        inherited["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command += ["-p", "eventbus.pytest_plugin"]
    done = subprocess.run(
        command, cwd=project, env=inherited | environment, capture_output=True, text=True, check=False
    )
    return done.stdout


def test_a_user_gets_a_log_in_memory_and_a_namespace_of_its_own(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
from eventbus.ports import TopicSpec
seen = set()

def test_one(memory_cluster, namespace):
    seen.add(namespace)
    memory_cluster.create([TopicSpec(namespace, 1, {})])

def test_other(memory_cluster, namespace):
    assert namespace not in seen
    assert memory_cluster.describe(seen) == dict.fromkeys(seen)
""",
        all_plugins=True,
    )
    assert "2 passed" in output


def test_a_named_broker_is_used_and_none_is_started(tmp_path: Path) -> None:
    output = run(tmp_path, SHOW_SERVERS, KAFKA_BOOTSTRAP_SERVERS="somewhere:9092")
    assert "servers: somewhere:9092" in output
    assert "1 passed" in output


def test_otherwise_the_embedded_broker_is_started_and_stopped(tmp_path: Path) -> None:
    output = run(tmp_path, SHOW_SERVERS, FAKE_BROKER)
    assert "servers: embedded:9092" in output
    assert "stopped" in output


def test_without_a_container_engine_the_embedded_broker_is_used_and_the_reason_told(tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/docker.sock"
    output = run(tmp_path, SHOW_SERVERS, FAKE_BROKER, EVENTBUS_TEST_BROKER="testcontainers", DOCKER_HOST=nowhere)
    assert "no Kafka container (" in output
    assert "servers: embedded:9092" in output


def test_an_unknown_kind_of_broker_is_named(tmp_path: Path) -> None:
    output = run(tmp_path, SHOW_SERVERS, EVENTBUS_TEST_BROKER="redpanda")
    assert "EVENTBUS_TEST_BROKER is `redpanda`; it can be embedded or testcontainers" in output


def test_a_broker_that_cannot_start_fails_only_the_tests_that_need_it(tmp_path: Path) -> None:
    broken = """
import eventbus.broker
from eventbus.broker import BrokerError

class BrokenBroker:
    def __init__(self, *, ephemeral): pass
    def start(self): raise BrokerError("there is no Java")

eventbus.broker.EmbeddedBroker = BrokenBroker
"""
    output = run(tmp_path, SHOW_SERVERS + "\ndef test_other(): pass\n", broken)
    assert "no broker for the tests: there is no Java" in output
    assert "1 passed, 1 error" in output


def test_loading_the_plugin_loads_no_client(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
import sys

def test_modules():
    heavy = {"confluent_kafka", "jgo", "testcontainers", "eventbus.kafka", "eventbus.memory", "eventbus.broker"}
    assert not heavy & sys.modules.keys()
""",
    )
    assert "1 passed" in output
