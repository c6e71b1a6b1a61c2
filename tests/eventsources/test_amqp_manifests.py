"""What a manifest may say of AMQP, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest

from eventsources.sources.amqp import AmqpSpec
from sensors import extras
from sensors.spec.problems import ManifestError
from tests.eventsources.serving import manifest

VALID = {"url": "amqp://h", "exchangeName": "e", "exchangeType": "topic"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"url": "amqp://u:p@h"}, "must not contain a user name or password"),
        ({"url": "http://h"}, "must be the server as `amqp://host:port/vhost`"),
        ({"url": "amqp://h:99999"}, "must be the server as `amqp://host:port/vhost`"),
        ({"url": "amqp://h/a/b"}, "must be the server as `amqp://host:port/vhost`"),
        ({"url": "amqp://h?heartbeat=1"}, "must be the server as `amqp://host:port/vhost`"),
        ({"urlSecret": {"name": "n", "key": "k"}}, "must have exactly one of `url` and `urlSecret`"),
        ({"url": None}, "must have exactly one of `url` and `urlSecret`"),
        ({"exchangeName": ""}, "exchangeName"),
        ({"exchangeName": "ü" * 200}, "must have at most 255 bytes"),
        ({"queueDeclare": {"arguments": "- a"}}, "must be a YAML mapping"),
        ({"queueDeclare": {"arguments": "a: 1.5"}}, "must be a YAML mapping"),
        ({"queueDeclare": {"arguments": "a: ["}}, "must be a YAML mapping"),
        ({"consume": {"autoack": True}}, "autoAck"),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("amqp", order={**VALID, **spec})
    assert message in str(error.value)


def test_every_field_of_argo_events_is_known() -> None:
    no_wait = {"noWait": True}
    spec = {
        **VALID,
        "routingKey": "k",
        "connectionBackoff": {"duration": "10s", "steps": 5, "factor": 2, "jitter": 0.2},
        "jsonBody": True,
        "tls": {"insecureSkipVerify": True},
        "exchangeDeclare": {"durable": True, "autoDelete": True, "internal": True, **no_wait},
        "queueDeclare": {"name": "q", "durable": True, "autoDelete": True, "exclusive": True, **no_wait},
        "queueBind": no_wait,
        "consume": {"consumerTag": "t", "autoAck": True, "exclusive": True, "noLocal": True, **no_wait},
        "auth": {"username": {"name": "n", "key": "u"}, "password": {"name": "n", "key": "p"}},
        "metadata": {"a": "b"},
        "filter": {"expression": "body.n > 1"},
    }
    advice = [(flaw.path[3:], flaw.message) for flaw in manifest("amqp", order=spec).advice()]
    assert [path for path, _ in advice] == [("queueDeclare",), ("consume", "autoAck")]
    assert "is lost" in advice[0][1]


def test_a_queue_that_keeps_what_it_gets_needs_no_advice() -> None:
    kept = AmqpSpec.model_validate({**VALID, "queueDeclare": {"name": "q", "durable": True}})
    assert list(kept.advice()) == []


def test_a_client_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ManifestError) as error:
        manifest("amqp", order=VALID)
    assert "this needs packages that are not installed: install `kafka-eventbus[amqp]`" in str(error.value)
