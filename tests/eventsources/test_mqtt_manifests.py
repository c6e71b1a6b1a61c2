"""What a manifest may say of MQTT, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest

from sensors import extras
from sensors.spec.problems import ManifestError
from tests.eventsources.serving import manifest

VALID = {"url": "tcp://h:1883", "topic": "a", "clientId": "c"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"url": "tcp://u:p@h"}, "must not contain a user name or password"),
        ({"url": "ws://h"}, "must be the server as `tcp://host:port`"),
        ({"url": "tcp://h:99999"}, "must be the server as `tcp://host:port`"),
        ({"url": "tcp://h/path"}, "must be the server as `tcp://host:port`"),
        ({"topic": ""}, "must be levels or `+`"),
        ({"topic": "a+/b"}, "must be levels or `+`"),
        ({"topic": "a/#/b"}, "must be levels or `+`"),
        ({"topic": "a#"}, "must be levels or `+`"),
        ({"clientId": ""}, "must be a name that no other client"),
        ({"clientID": "c"}, "clientId"),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("mqtt", order={**VALID, **spec})
    assert message in str(error.value)


def test_every_field_of_argo_events_is_known() -> None:
    spec = {
        **VALID,
        "topic": "$share/group/orders/+/#",
        "connectionBackoff": {"duration": "10s", "steps": 5, "factor": 2, "jitter": 0.2},
        "jsonBody": True,
        "tls": {"insecureSkipVerify": True},
        "auth": {"username": {"name": "n", "key": "u"}, "password": {"name": "n", "key": "p"}},
        "metadata": {"a": "b"},
        "filter": {"expression": "body.n > 1"},
    }
    assert list(manifest("mqtt", order=spec).advice()) == []


def test_a_client_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ManifestError) as error:
        manifest("mqtt", order=VALID)
    assert "this needs packages that are not installed: install `kafka-eventbus[mqtt]`" in str(error.value)
