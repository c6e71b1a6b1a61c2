"""Whatever keeps a client out is told in one line, which says what to do."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from eventbus import Bus, BusName, Event
from eventbus.errors import EventBusError, FatalError, RetriableError
from eventbus.kafka import KafkaCluster
from eventbus.kafka.connection import Connection
from sensors.spec.busloader import load_event_bus
from tests.security.broker import PASSWORD, SecureBroker, User, wait_until
from tests.security.conftest import NewUser

pytestmark = pytest.mark.kafka


def _complaint(connection: Connection) -> EventBusError:
    """What somebody gets to read who only wants to publish an event."""
    with pytest.raises(EventBusError) as caught, Bus.on(connection, BusName("shop")) as bus:
        bus.publish(Event.new("shop", "order"))
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_wrong_password(secure_broker: SecureBroker, new_user: NewUser) -> None:
    user = User(new_user("ann").name, "a-wrong-guess")
    error = _complaint(secure_broker.connection(user))
    assert isinstance(error, FatalError)
    assert str(error).startswith(
        f"Kafka, describing topic shop-default on {secure_broker.address()}: {secure_broker.address()} does not let "
        "this client in: "
    )
    assert str(error).endswith("Check the user name and the password.")
    assert "a-wrong-guess" not in str(error)


def test_a_mechanism_that_the_broker_does_not_have(secure_broker: SecureBroker, new_user: NewUser) -> None:
    error = _complaint(secure_broker.connection(new_user("ann"), sasl_mechanism="PLAIN"))
    assert str(error).endswith("Check the mechanism.")


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        ("EXPIRED", "has expired. Renew it on the broker."),
        ("ELSEWHERE", "is for another host. Reach the broker by a name that is in its certificate"),
    ],
)
def test_a_bad_certificate(secure_broker: SecureBroker, new_user: NewUser, listener: str, words: str) -> None:
    error = _complaint(secure_broker.connection(new_user("ann"), listener))
    assert isinstance(error, FatalError)
    assert f"the certificate of {secure_broker.address(listener)} {words}" in str(error)


def test_an_authority_that_is_not_trusted(secure_broker: SecureBroker, new_user: NewUser) -> None:
    error = _complaint(secure_broker.connection(new_user("ann"), ssl_ca_location=str(secure_broker.stranger)))
    assert isinstance(error, FatalError)
    assert "was issued by an authority that this client does not trust. Name the broker's authority" in str(error)


def test_no_tls_where_the_broker_wants_it(secure_broker: SecureBroker) -> None:
    error = _complaint(Connection(secure_broker.address()))
    assert isinstance(error, FatalError)
    assert f"{secure_broker.address()} speaks TLS, and this client does not. Set `tls`" in str(error)


def test_tls_where_the_broker_has_none(secure_broker: SecureBroker) -> None:
    connection = secure_broker.connection(User("ann"))
    error = _complaint(msgspec.structs.replace(connection, bootstrap_servers=secure_broker.open_address))
    assert isinstance(error, RetriableError)
    assert "does not answer as TLS does: is it a listener without TLS?" in str(error)


def test_a_missing_permission(secure_broker: SecureBroker, new_user: NewUser) -> None:
    error = _complaint(secure_broker.connection(new_user("ann")))
    assert isinstance(error, FatalError)
    assert str(error) == (
        f"Kafka, describing topic shop-default on {secure_broker.address()}: Broker: Topic authorization failed. "
        "Grant this client what `eventbus acls` lists for the topic."
    )


def test_what_reads_and_what_writes_is_told_too(secure_broker: SecureBroker, new_user: NewUser) -> None:
    connection = secure_broker.connection(User(new_user("ann").name, "a-wrong-guess"))
    cluster = KafkaCluster(connection)
    reader = cluster.reader()
    reader.open("shop-default", 0, 0)
    for call in (cluster.publisher, cluster.producer("someone").init, lambda: reader.read(1, 5.0)):
        with pytest.raises(FatalError, match="does not let this client in"):
            call()
    reader.close()
    cluster.close()


def test_no_password_in_the_log(
    secure_broker: SecureBroker, new_user: NewUser, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    user = new_user("ann")
    _complaint(secure_broker.connection(user, debug="all"))
    _complaint(secure_broker.connection(User(user.name, "a-wrong-guess"), debug="all"))
    out, err = capfd.readouterr()
    assert caplog.text
    for text in (caplog.text, out, err):
        assert PASSWORD not in text
        assert "a-wrong-guess" not in text


def test_a_new_password_is_taken_by_a_client_that_runs(
    secure_broker: SecureBroker, new_user: NewUser, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker asks for the password again every other second."""
    caplog.set_level(logging.INFO, "eventbus.kafka")
    user = new_user("ann")
    cluster = KafkaCluster(secure_broker.connection(user))
    assert _may_not(cluster)
    user.password = "staple-and-battery"
    secure_broker.admit(user)
    wait_until(lambda: _may_not(cluster) and "going on with the new ones" in caplog.text)
    cluster.close()


def _may_not(cluster: KafkaCluster) -> bool:
    """Whether the broker lets the client in; it is told that it may do nothing."""
    with pytest.raises(FatalError) as caught:
        cluster.describe(["shop-default"])
    return "authorization failed" in str(caught.value)


def test_a_password_in_a_file(secure_broker: SecureBroker, new_user: NewUser, tmp_path: Path) -> None:
    """As a manifest names it."""
    user = new_user("ann")
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "user").write_text(user.name)
    (tmp_path / "kafka" / "password").write_text(user.password)
    manifest = tmp_path / "bus.yaml"
    manifest.write_text(
        f"""\
apiVersion: argoproj.io/v1alpha1
kind: EventBus
metadata: {{name: default, namespace: shop}}
spec:
  kafka:
    url: {secure_broker.address()}
    tls: {{caCertFile: {secure_broker.authority}}}
    sasl:
      mechanism: SCRAM-SHA-512
      userSecret: {{name: kafka, key: user}}
      passwordSecret: {{name: kafka, key: password}}
"""
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
        error = _complaint(load_event_bus(manifest).connection())
    assert "Topic authorization failed" in str(error)
