"""A data directory is used by one broker at a time, of the version and size it was made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.broker.config import NodeAddress, server_properties
from eventbus.broker.data import DataDirectory
from eventbus.errors import ConfigError


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.broker.data.PREDECESSOR_SECONDS", 0.0)


def made(path: Path, nodes: int = 1) -> str:
    """Use a directory and leave it; return its cluster id."""
    data = DataDirectory(path, nodes)
    data.close()
    return data.cluster_id


def test_a_directory_keeps_its_cluster_id(tmp_path: Path) -> None:
    assert made(tmp_path / "one") == made(tmp_path / "one") != made(tmp_path / "two")


def test_a_directory_in_use_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path, 1)
    with pytest.raises(ConfigError, match=f"{tmp_path} is in use by another broker.*--data"):
        DataDirectory(tmp_path, 1)
    data.close()
    made(tmp_path)


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    made(tmp_path, nodes=3)
    with pytest.raises(ConfigError, match=r"holds a cluster of 3 node\(s\), not 1: start it with --nodes 3"):
        made(tmp_path, nodes=1)
    made(tmp_path, nodes=3)


def test_data_of_another_kafka_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    marker = tmp_path / "kafka.json"
    marker.write_text(marker.read_text().replace("4.3.1", "3.9.0"))
    with pytest.raises(ConfigError, match=r"holds data of Kafka 3\.9\.0, this is 4\.3\.1"):
        made(tmp_path)


def test_a_damaged_marker_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "kafka.json").write_text("{")
    with pytest.raises(ConfigError, match=rf"{tmp_path}/kafka\.json cannot be read"):
        made(tmp_path)


def test_a_directory_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ConfigError, match="is not empty and not a broker's data directory"):
        made(tmp_path)
    assert not (tmp_path / "kafka.json").exists()


def test_a_path_that_kafka_would_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no comma"):
        made(tmp_path / "a,b")


def test_a_temporary_directory_is_removed_also_when_it_cannot_be_used(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_for_us = DataDirectory(None, 1)
    assert made_for_us.path.parent == temporary
    made_for_us.close()
    monkeypatch.setattr("eventbus.broker.data.KAFKA_VERSION", property())  # cannot be written down
    with pytest.raises(TypeError):
        DataDirectory(None, 1)
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(("nodes", "in_sync"), [(1, 1), (3, 2)])
def test_replication_fits_the_number_of_nodes(nodes: int, in_sync: int) -> None:
    cluster = [NodeAddress(number, 9091 + number, 19091 + number) for number in range(1, nodes + 1)]
    properties = dict(line.split("=", 1) for line in server_properties(cluster[0], cluster, Path("/data")).splitlines())
    assert properties["default.replication.factor"] == str(nodes)
    assert properties["offsets.topic.replication.factor"] == str(nodes)
    assert properties["transaction.state.log.replication.factor"] == str(nodes)
    assert properties["min.insync.replicas"] == str(in_sync)
    assert properties["transaction.state.log.min.isr"] == str(in_sync)
    assert properties["auto.create.topics.enable"] == "false"
    assert "0.0.0.0" not in properties["listeners"]


def test_no_transaction_is_aborted_before_one_of_several_killed_nodes_was_deposed() -> None:
    """Its partitions lose their leaders then, and Kafka leaves such a transaction open for ever."""
    nodes = [NodeAddress(number, 9091 + number, 19091 + number) for number in (1, 2, 3)]
    properties = dict(line.split("=", 1) for line in server_properties(nodes[0], nodes, Path("/data")).splitlines())
    first_look = int(properties["transaction.abort.timed.out.transaction.cleanup.interval.ms"])
    assert int(properties["broker.session.timeout.ms"]) + 2000 <= first_look <= 9000
