"""`eventbus acls`: the same permissions as a table, as JSON and as commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.cli.conftest import Command

KAFKA = """\
apiVersion: eventbus.dev/v1alpha1
kind: Sensor
metadata: {name: copies}
spec:
  dependencies:
    - {name: paid, eventSourceName: shop, eventName: paid}
  triggers:
    - template: {name: here, kafka: {topic: ledger}}
    - template: {name: there, kafka: {topic: elsewhere, url: "other:9092"}}
"""


def test_a_table_that_can_be_cut(cli: Command, orders: Path) -> None:
    answer = cli("acls", orders, "--part", "send")
    assert answer.out.splitlines() == [
        "MANIFEST                PART  RESOURCE  NAME             PATTERN  OPERATION",
        "default/default/orders  send  topic     default-default  literal  Write",
        "default/default/orders  send  topic     default-default  literal  DescribeConfigs",
    ]


def test_json(cli: Command, orders: Path) -> None:
    found = json.loads(cli("acls", orders, "--principal", "User:x", "--output", "json", "--namespace", "shop").out)
    assert found["principal"] == "User:x"
    assert {
        "manifest": "shop/default/orders",
        "part": "join",
        "resource": "transactional-id",
        "name": "shop-default-orders-join-",
        "pattern": "prefixed",
        "operation": "Write",
    } in found["acls"]


def test_commands_can_be_given_to_a_shell(cli: Command, orders: Path) -> None:
    lines = cli("acls", orders, "-o", "commands", "--part", "match", "--principal", "User:a b").out.splitlines()
    assert len(lines) == len(set(lines)) == 7
    words = shlex.split(lines[-1])
    assert words[:2] == ["kafka-acls.sh", "--bootstrap-server"]
    assert words[words.index("--allow-principal") + 1] == "User:a b"
    assert words[-2:] == ["--resource-pattern-type", "prefixed"]


def test_a_kafka_action_needs_its_topic_on_the_own_cluster_only(cli: Command, tmp_path: Path) -> None:
    file = tmp_path / "copies.yaml"
    file.write_text(KAFKA)
    out = cli("acls", file, "--part", "invoke").out
    assert " ledger " in out
    assert " elsewhere " not in out


def test_an_unknown_part(cli: Command, orders: Path) -> None:
    answer = cli("acls", orders, "--part", "everything")
    assert answer.code == 2
    assert "error: --part cannot be `everything`; it is one of create, start, match," in answer.err
