"""Which servers an `http` action may call: decided by the address that is connected to, however it was written.

Link-local addresses are where clouds hand out credentials to whoever asks, so nobody's action calls them. Apart from
that a manifest may name any server. An event may not: a host that came with one must be on the public Internet, unless
the manifest lists it.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from sensors.actions.base import ActionError

Address: TypeAlias = IPv4Address | IPv6Address

_NEVER = tuple(
    map(
        ip_network,
        ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "168.63.129.16/32", "192.0.0.192/32"),
    )
)
"""The last two hand out credentials on Azure and Oracle's cloud."""
_WITH_IPV4_AT_THE_END = tuple(map(ip_network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96")))
_NOT_PUBLIC = tuple(map(ip_network, ("192.0.0.0/24", "fec0::/10")))
"""What some versions of Python take for public."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class AddressGuard(msgspec.Struct, frozen=True):
    """What one action may connect to."""

    home: tuple[str, int]
    """The host and port in the manifest."""
    allowed: tuple[str, ...] = ()
    """Further hosts, wherever they are; `*.example.org` is all hosts below `example.org`."""

    @classmethod
    def of(cls, url: str, allowed: Iterable[str]) -> AddressGuard:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        return cls((_plain(parts.hostname or ""), port), tuple(map(_plain, allowed)))

    def check(self, host: str, port: int, addresses: Iterable[str]) -> None:
        """`addresses` are those of the host. Raises `ActionError` if one of them is out of bounds."""
        host = _plain(host)
        trusted = (host, port) == self.home or any(_covers(each, host) for each in self.allowed)
        for text in addresses:
            address = _real(ip_address(text.partition("%")[0]))
            if any(address in network for network in _NEVER):
                reason = f"{_shown(host, text)} is a link-local or metadata address, which no action may call"
            elif not trusted and not _is_public(address):
                reason = (
                    f"the events lead to {_shown(host, text)}, which is not on the public Internet; "
                    "list the host in `allowHosts` if it is meant"
                )
            else:
                continue
            raise ActionError(reason, retriable=False, sent=False)


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in network for network in _NOT_PUBLIC)


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _covers(allowed: str, host: str) -> bool:
    return host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed


def _real(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, IPv4Address):
        return address
    embedded = address.ipv4_mapped or address.sixtofour
    if embedded is not None:
        return embedded
    stands_for_ipv4 = any(address in network for network in _WITH_IPV4_AT_THE_END) and int(address) > 1
    return IPv4Address(int(address) & 0xFFFFFFFF) if stands_for_ipv4 else address


def _shown(host: str, address: str) -> str:
    return host if host == address else f"{host} ({address})"
