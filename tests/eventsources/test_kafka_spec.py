"""What a manifest may say of the source `kafka`, and which replicas run it."""

from __future__ import annotations

from typing import Any

import pytest

from eventsources.spec import EVENT_SOURCES, EventSourceManifest
from sensors.spec.problems import ManifestError
from tests.eventsources.serving import manifest

ADDRESS = {"url": "kafka:9092", "topic": "orders"}
GROUP = {**ADDRESS, "consumerGroup": {"groupName": "g"}}
PARTITION = {**ADDRESS, "partition": "0"}
SECRET = {"name": "kafka", "key": "k"}


def test_all_fields_of_argo_events_are_known() -> None:
    everything = {
        **GROUP,
        "consumerGroup": {"groupName": "g", "oldest": True, "rebalanceStrategy": "sticky"},
        "partition": "0",
        "limitEventsPerSecond": 5,
        "version": "2.5.0",
        "jsonBody": True,
        "tls": {"caCertSecret": SECRET, "clientCertSecret": SECRET, "clientKeySecret": SECRET},
        "sasl": {"mechanism": "SCRAM-SHA-512", "userSecret": SECRET, "passwordSecret": SECRET},
        "connectionBackoff": {"duration": 10_000_000_000, "steps": 5, "factor": 2, "jitter": 0.2},
        "config": "net:\n  MaxOpenRequests: 5\n",
        "schemaRegistry": {"url": "http://registry", "schemaId": 1, "auth": {"username": SECRET, "password": SECRET}},
        "metadata": {"a": "b"},
        "filter": {"expression": "body.amount > 1"},
    }
    made = manifest("kafka", order=everything)
    assert [(flaw.path[3:], flaw.message.split(":")[0]) for flaw in made.advice()] == [
        (("config",), "`config` does nothing"),
        (("version",), "`version` does nothing"),
        (("partition",), "`partition` does nothing"),
        (("consumerGroup", "rebalanceStrategy"), "`rebalanceStrategy` does nothing"),
    ]


def test_a_registry_without_json_is_probably_not_meant() -> None:
    made = manifest("kafka", order={**GROUP, "schemaRegistry": {"url": "http://registry"}})
    assert [flaw.message for flaw in made.advice()] == ["`schemaRegistry` does nothing without `jsonBody: true`"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ADDRESS, "a `kafka` source needs a `consumerGroup`, or the number of a `partition`"),
        ({**GROUP, "url": "http://kafka"}, "must be one or more Kafka brokers"),
        ({**GROUP, "topic": "a b"}, "must consist of letters"),
        ({**PARTITION, "partition": "one"}, 'must be the number of a partition, in quotes: `"0"`'),
        ({**PARTITION, "partition": 0}, "partition"),
        ({**ADDRESS, "consumerGroup": {"groupName": ""}}, "groupName"),
        ({**ADDRESS, "consumerGroup": {"groupName": "g", "rebalanceStrategy": "fair"}}, "rebalanceStrategy"),
        ({**GROUP, "limitEventsPerSecond": -1}, "limitEventsPerSecond"),
        ({**GROUP, "config": {"enable.auto.commit": "true"}}, "is chosen by the event bus and cannot be changed"),
        ({**GROUP, "config": {"sasl.password": "x"}}, "name a secret in `sasl.passwordSecret`"),
        ({**GROUP, "config": {"no.such": "x"}}, 'No such configuration property: "no.such"'),
        ({**GROUP, "sasl": {"mechanism": "PLAIN"}}, "the mechanism `PLAIN` needs `userSecret`"),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("kafka", order=spec)
    assert message in str(error.value)


def test_settings_of_the_client_are_passed_on() -> None:
    [(_, spec)] = manifest("kafka", order={**GROUP, "config": {"fetch.min.bytes": "10"}}).identities()
    assert spec.connection().clients == {"fetch.min.bytes": "10"}  # type: ignore[attr-defined]


# --- which replicas run it ------------------------------------------------------------------------------------------


def mixed(**kinds: dict[str, Any]) -> EventSourceManifest:
    metadata = {"name": "x"}
    return EVENT_SOURCES.make(
        {"apiVersion": "eventbus.dev/v1alpha1", "kind": "EventSource", "metadata": metadata, "spec": kinds}
    )


CALENDAR = {"tick": {"interval": "1m"}}
WEBHOOK = {"hook": {"endpoint": "/"}}


@pytest.mark.parametrize(
    ("kinds", "once"),
    [
        ({"kafka": {"a": GROUP}}, False),
        ({"kafka": {"a": PARTITION}}, True),
        ({"kafka": {"a": GROUP, "b": PARTITION}}, True),
        ({"kafka": {"a": GROUP}, "webhook": WEBHOOK}, False),
        ({"kafka": {"a": GROUP}, "calendar": CALENDAR}, True),
        ({"kafka": {"a": PARTITION}, "calendar": CALENDAR}, True),
    ],
)
def test_a_group_runs_where_its_neighbours_do(kinds: dict[str, Any], once: bool) -> None:
    assert mixed(**kinds).once is once


@pytest.mark.parametrize(
    ("kinds", "place"),
    [
        ({"kafka": {"a": PARTITION}, "webhook": WEBHOOK}, "spec.kafka.a"),
        ({"kafka": {"a": GROUP, "b": PARTITION}, "webhook": WEBHOOK}, "spec.kafka.b"),
        ({"kafka": {"a": GROUP}, "webhook": WEBHOOK, "calendar": CALENDAR}, "spec.calendar.tick"),
    ],
)
def test_what_runs_once_does_not_mix_with_what_runs_everywhere(kinds: dict[str, Any], place: str) -> None:
    with pytest.raises(ManifestError) as error:
        mixed(**kinds)
    assert f"{place}: " in str(error.value)
    assert "runs in one replica at a time and other sources in all: make two EventSources" in str(error.value)
