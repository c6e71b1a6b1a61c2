"""A Kafka whose clients need TLS, a password and permissions; and its administrator, who needs none of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from types import TracebackType
from typing import Self

import msgspec
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package has no __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eventbus.broker import EmbeddedBroker
from eventbus.broker.config import NodeAddress
from eventbus.broker.ports import HOST, free_ports
from eventbus.clock import Deadline, SystemClock
from eventbus.kafka.connection import Connection
from sensors.acls import Permission, Resource
from tests.security.certificates import Authority
from tests.security.provider import AUDIENCE, ISSUER, Signer

PASSWORD = "correct-horse-battery"
MECHANISM = "SCRAM-SHA-512"
_LOGINS = {
    MECHANISM: "scram.ScramLoginModule required;",
    "PLAIN": f'plain.PlainLoginModule required user_plain="{PASSWORD}";',
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule required;",
}
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
MUTUAL = "MUTUAL"
_TYPES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}


class User(msgspec.Struct):
    """Somebody with a password, which may change."""

    name: str
    password: str = PASSWORD

    def secrets(self) -> Mapping[str, str]:
        return {"sasl.username": self.name, "sasl.password": self.password}


class SecureBroker:
    """One node. Three listeners want a login; their certificates are good, too old, and another host's.

    The fourth wants a certificate instead.
    """

    def __init__(self, directory: Path) -> None:
        self.issuer = authority = Authority(directory, "authority")
        self.authority = authority.file
        self.signer = Signer(directory)
        self.stranger = Authority(directory, "stranger").file
        self._certificates = {
            "GOOD": authority.issue("localhost"),
            "EXPIRED": authority.issue("localhost", expired=True),
            "ELSEWHERE": authority.issue("elsewhere.example"),
            MUTUAL: authority.issue("localhost"),
        }
        self._ports = dict(zip(self._certificates, free_ports(len(self._certificates)), strict=True))
        self._broker = EmbeddedBroker(ephemeral=True, further=self._properties)

    def __enter__(self) -> Self:
        with self._trusting_our_keys():
            self._broker.start()
        self._admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers, "log_level": 0})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.stop()

    def kill(self) -> None:
        """What it has got is kept."""
        self._broker.kill()

    def restart(self) -> None:
        with self._trusting_our_keys():
            self._broker.restart()

    @contextmanager
    def _trusting_our_keys(self) -> Iterator[None]:
        """Kafka reads keys from nowhere that it is not told of when its Java starts."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys}")
            yield

    @property
    def open_address(self) -> str:
        """Where nobody is asked who he is, and everything is permitted."""
        return self._broker.bootstrap_servers

    def address(self, listener: str = "GOOD") -> str:
        return f"localhost:{self._ports[listener]}"

    def connection(self, user: User, listener: str = "GOOD", **others: str) -> Connection:
        settings = {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": MECHANISM,
            "ssl.ca.location": str(self.authority),
            **{name.replace("_", "."): value for name, value in others.items()},
        }
        return Connection(self.address(listener), settings, secrets=user.secrets)

    def admit(self, user: User) -> None:
        """From now on the user's password is this one."""
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user.name, credentials, user.password.encode())
        self._admin.alter_user_scram_credentials([change])[user.name].result(30)

    def permit(self, user: User, permissions: Iterable[Permission]) -> None:
        """Returns when the broker goes by it."""
        bindings = [_binding(user, each) for each in dict.fromkeys(permissions)]
        for future in self._admin.create_acls(bindings).values():
            future.result(30)
        wait_until(lambda: self._permitted(user) >= len(bindings))

    def _permitted(self, user: User) -> int:
        anything = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # any name, as the documentation has it
            ResourcePatternType.ANY,
            f"User:{user.name}",
            None,  # type: ignore[arg-type]  # any host
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return len(self._admin.describe_acls(anything).result(30))

    def _properties(self, node: NodeAddress) -> Mapping[str, object]:
        secure = ",".join(f"{name}://localhost:{port}" for name, port in self._ports.items())
        listeners = f"BROKER://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port},{secure}"
        protocols = ",".join(f"{name}:{'SSL' if name == MUTUAL else 'SASL_SSL'}" for name in self._ports)
        properties: dict[str, object] = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "connections.max.reauth.ms": 2000,
        }
        for name, file in self._certificates.items():
            listener = f"listener.name.{name.lower()}"
            properties |= {f"{listener}.ssl.keystore.type": "PEM", f"{listener}.ssl.keystore.location": file}
            properties |= self._mutual(listener) if name == MUTUAL else self._logins(listener)
        return properties

    def _mutual(self, listener: str) -> Mapping[str, object]:
        return {
            f"{listener}.ssl.client.auth": "required",
            f"{listener}.ssl.truststore.type": "PEM",
            f"{listener}.ssl.truststore.location": self.authority,
        }

    def _logins(self, listener: str) -> Mapping[str, object]:
        logins = {
            f"{listener}.{name.lower()}.sasl.jaas.config": f"org.apache.kafka.common.security.{login}"
            for name, login in _LOGINS.items()
        }
        return logins | {
            f"{listener}.sasl.enabled.mechanisms": ",".join(_LOGINS),
            f"{listener}.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            f"{listener}.oauthbearer.connections.max.reauth.ms": 3_600_000,  # whenever a token expires
            f"{listener}.sasl.oauthbearer.jwks.endpoint.url": self._keys,
            f"{listener}.sasl.oauthbearer.clock.skew.seconds": 0,
            f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{listener}.sasl.oauthbearer.expected.issuer": ISSUER,
        }

    @property
    def _keys(self) -> str:
        return self.signer.file.as_uri()


def _binding(user: User, permission: Permission) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if permission.prefixed else ResourcePatternType.LITERAL
    return AclBinding(
        _TYPES[permission.resource],
        permission.name,
        pattern,
        f"User:{user.name}",
        "*",
        AclOperation[permission.operation.name],
        AclPermissionType.ALLOW,
    )


def wait_until(reached: Callable[[], bool]) -> None:
    """For what another process does."""
    deadline = Deadline(SystemClock(), 30)
    while not reached():
        assert not deadline.over(), "this did not come true within 30 s"
        Flag().wait(0.05)
