"""Whose request headers count, and who sees all of `cache-status`: peers that the configuration names under `trust`."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.message import Peer

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_network(text: str) -> Network:
    """A CIDR range or a single address; an IPv4-mapped IPv6 range becomes the IPv4 range that it stands for.

    Raises `ValueError` with a sentence that says what is expected.
    """
    try:
        network = ipaddress.ip_network(text, strict=True)
    except ValueError:
        try:
            near = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ValueError(f"expected an address range such as 10.0.0.0/8 or ::1, got {text[:50]!r}") from None
        raise ValueError(f"{text} has bits set beyond its prefix; write {near}") from None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


class TrustRule:
    """Which peers may set a header. The default trusts nobody.

    `mesh` are peers that Envoy verified by mTLS; `networks` are matched against the downstream address as Envoy
    reports it. With `use_remote_address` and no trusted hops, as under `meshcache up` and by default at an Istio
    gateway, that is the connection's own and no header changes it. Otherwise, as in Istio's inbound proxies, Envoy
    takes it from `x-forwarded-for`, which any caller can write: there, only `mesh` is safe.
    """

    __slots__ = ("_addressed", "anyone", "mesh", "networks")

    def __init__(self, *, anyone: bool = False, mesh: bool = False, networks: Iterable[Network] = ()) -> None:
        self.anyone = anyone
        self.mesh = mesh
        self.networks: tuple[Network, ...] = tuple(networks)
        # Parsing an address costs some microseconds, and the peers of one pod are few: remember the answers.
        self._addressed = lru_cache(maxsize=4096)(self._in_networks)

    @property
    def nobody(self) -> bool:
        """Whether no peer at all is trusted."""
        return not (self.anyone or self.mesh or self.networks)

    def trusts(self, peer: Peer) -> bool:
        """Whether what `peer` says in the header counts. Never raises; an unknown address is not trusted."""
        if self.anyone or (self.mesh and peer.mtls):
            return True
        return bool(self.networks) and self._addressed(peer.address)

    def _in_networks(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self.networks)

    def __str__(self) -> str:
        if self.anyone:
            return "any"
        named = (["mesh"] if self.mesh else []) + [str(network) for network in self.networks]
        return ", ".join(named) or "nobody"

    def __repr__(self) -> str:
        return f"TrustRule({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrustRule) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[bool, bool, tuple[Network, ...]]:
        return (self.anyone, self.mesh, self.networks)
