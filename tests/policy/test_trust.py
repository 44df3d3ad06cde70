"""Whose headers count."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.message import Peer
from meshcache.policy.trust import TrustRule, parse_network


def rule(*ranges: str, mesh: bool = False) -> TrustRule:
    return TrustRule(mesh=mesh, networks=[parse_network(text) for text in ranges])


@pytest.mark.parametrize(
    ("ranges", "address", "trusted"),
    [
        (("10.0.0.0/8",), "10.255.0.1", True),
        (("10.0.0.0/8",), "11.0.0.1", False),
        (("10.0.0.0/8",), "::ffff:10.1.2.3", True),
        (("::ffff:10.0.0.0/104",), "10.1.2.3", True),
        (("::ffff:10.0.0.0/104",), "::ffff:11.0.0.1", False),
        (("::1",), "::1", True),
        (("::1",), "127.0.0.1", False),
        (("::/0",), "10.1.2.3", False),
        (("0.0.0.0/0",), "::1", False),
        (("0.0.0.0/0", "::/0"), "2001:db8::1", True),
        (("fe80::/10",), "fe80::1%eth0", True),
        (("127.0.0.1",), "127.0.0.1", True),
        (("127.0.0.0/8",), "", False),
        (("127.0.0.0/8",), "localhost", False),
        (("127.0.0.0/8",), "127.0.0.1:8080", False),
        (("127.0.0.0/8",), "127.0.0.1, 10.0.0.1", False),
        ((), "127.0.0.1", False),
    ],
)
def test_addresses(ranges: tuple[str, ...], address: str, trusted: bool) -> None:
    made = rule(*ranges)
    assert made.trusts(Peer(address)) is trusted
    assert made.trusts(Peer(address)) is trusted  # the remembered answer


def test_mesh_is_a_verified_certificate() -> None:
    assert rule(mesh=True).trusts(Peer("192.0.2.1", mtls=True))
    assert not rule(mesh=True).trusts(Peer("192.0.2.1"))
    assert not rule("10.0.0.0/8").trusts(Peer("192.0.2.1", mtls=True))
    assert rule("192.0.2.0/24", mesh=True).trusts(Peer("192.0.2.1"))


def test_anyone_and_nobody() -> None:
    assert TrustRule(anyone=True).trusts(Peer())
    assert not TrustRule().trusts(Peer("127.0.0.1", mtls=True))
    assert (str(TrustRule()), str(TrustRule(anyone=True))) == ("nobody", "any")
    assert str(rule("10.0.0.0/8", mesh=True)) == "mesh, 10.0.0.0/8"


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "x", "", "10.0.0", "010.0.0.0/8", "10.0.0.0-10.0.0.9"])
def test_ranges_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected an address range|write 10\.0\.0\.0/8"):
        parse_network(text)


@given(st.ip_addresses(), st.integers(0, 128))
def test_an_address_is_in_its_own_range(address: ipaddress.IPv4Address | ipaddress.IPv6Address, size: int) -> None:
    network = ipaddress.ip_network((address, min(size, address.max_prefixlen)), strict=False)
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen >= 96:
        assert rule(str(network)).trusts(Peer(str(address)))


@given(st.text(max_size=60))
def test_no_address_raises(text: str) -> None:
    assert rule("10.0.0.0/8").trusts(Peer(text)) in (True, False)
