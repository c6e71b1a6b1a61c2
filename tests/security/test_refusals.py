"""Whatever keeps a client out is told in one line, which says what to do."""

from __future__ import annotations

import logging

import msgspec
import pytest

from eventbus.errors import FatalError, RetriableError
from eventbus.kafka import KafkaCluster
from eventbus.kafka.connection import Connection
from tests.security.broker import PASSWORD, SecureBroker, User, wait_until
from tests.security.conftest import NewSettings, NewUser, complaint, is_let_in
from tests.security.manifests import Settings

pytestmark = pytest.mark.kafka


def test_a_wrong_password(secure_broker: SecureBroker, new_user: NewUser) -> None:
    user = User(new_user("ann").name, "a-wrong-guess")
    error = complaint(secure_broker.connection(user))
    assert isinstance(error, FatalError)
    assert str(error).startswith(
        f"Kafka, describing topic shop-default on {secure_broker.address()}: {secure_broker.address()} does not let "
        "this client in: "
    )
    assert str(error).endswith("Check the user name and the password.")
    assert "a-wrong-guess" not in str(error)


def test_a_mechanism_that_the_broker_does_not_have(secure_broker: SecureBroker, new_user: NewUser) -> None:
    error = complaint(secure_broker.connection(new_user("ann"), sasl_mechanism="SCRAM-SHA-256"))
    assert str(error).endswith("Check the mechanism.")


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        ("EXPIRED", "has expired. Renew it on the broker."),
        ("ELSEWHERE", "is for another host. Reach the broker by a name that is in its certificate"),
    ],
)
def test_a_bad_certificate(secure_broker: SecureBroker, new_user: NewUser, listener: str, words: str) -> None:
    error = complaint(secure_broker.connection(new_user("ann"), listener))
    assert isinstance(error, FatalError)
    assert f"the certificate of {secure_broker.address(listener)} {words}" in str(error)


def test_an_authority_that_is_not_trusted(secure_broker: SecureBroker, new_user: NewUser) -> None:
    error = complaint(secure_broker.connection(new_user("ann"), ssl_ca_location=str(secure_broker.stranger)))
    assert isinstance(error, FatalError)
    assert "was issued by an authority that this client does not trust. Name the broker's authority" in str(error)


def test_no_tls_where_the_broker_wants_it(secure_broker: SecureBroker) -> None:
    error = complaint(Connection(secure_broker.address()))
    assert isinstance(error, FatalError)
    assert f"{secure_broker.address()} speaks TLS, and this client does not. Set `tls`" in str(error)


def test_tls_where_the_broker_has_none(secure_broker: SecureBroker) -> None:
    connection = secure_broker.connection(User("ann"))
    error = complaint(msgspec.structs.replace(connection, bootstrap_servers=secure_broker.open_address))
    assert isinstance(error, RetriableError)
    assert "does not answer as TLS does: is it a listener without TLS?" in str(error)


def test_a_missing_permission(secure_broker: SecureBroker, new_user: NewUser) -> None:
    error = complaint(secure_broker.connection(new_user("ann")))
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
    complaint(secure_broker.connection(user, debug="all"))
    complaint(secure_broker.connection(User(user.name, "a-wrong-guess"), debug="all"))
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
    assert is_let_in(cluster)
    user.password = "staple-and-battery"
    secure_broker.admit(user)
    wait_until(lambda: is_let_in(cluster) and "going on with the new ones" in caplog.text)
    cluster.close()


def test_a_password_in_a_file(new_settings: NewSettings, new_user: NewUser) -> None:
    """As a manifest names it."""
    user, settings = new_user("ann"), new_settings()
    secrets = {"userSecret": settings.write("user", user.name), "passwordSecret": settings.write("password", PASSWORD)}
    error = complaint(settings.connection({"mechanism": "SCRAM-SHA-512", **secrets}))
    assert "Topic authorization failed" in str(error)


# --- PLAIN ------------------------------------------------------------------------------------------------------------


def _plain(settings: Settings, password: str) -> Connection:
    """Whom the broker knows from its start."""
    secrets = {"userSecret": settings.write("user", "plain"), "passwordSecret": settings.write("password", password)}
    return settings.connection({"mechanism": "PLAIN", **secrets})


def test_a_plain_password(new_settings: NewSettings) -> None:
    assert "Topic authorization failed" in str(complaint(_plain(new_settings(), PASSWORD)))


def test_a_plain_password_that_is_wrong(secure_broker: SecureBroker, new_settings: NewSettings) -> None:
    error = complaint(_plain(new_settings(), "a-wrong-guess"))
    assert isinstance(error, FatalError)
    assert f"{secure_broker.address()} does not let this client in: " in str(error)
    assert str(error).endswith("Check the user name and the password.")
    assert "a-wrong-guess" not in str(error)


def test_a_plain_password_that_is_put_right_while_the_client_runs(new_settings: NewSettings) -> None:
    settings = new_settings()
    cluster = KafkaCluster(_plain(settings, "a-wrong-guess"))
    assert not is_let_in(cluster)
    settings.write("password", PASSWORD)
    assert is_let_in(cluster)
    cluster.close()
