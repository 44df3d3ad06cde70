import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.message import Headers
from meshcache.rfc.hop_by_hop import HOP_BY_HOP, hop_by_hop_names


def test_known_names_without_connection() -> None:
    assert hop_by_hop_names(Headers([("x", "1")])) == HOP_BY_HOP
    assert {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "proxy-connection"} <= HOP_BY_HOP


def test_connection_nominates() -> None:
    names = hop_by_hop_names(Headers([("connection", "close, X-A"), ("connection", "x-b")]))
    assert names == HOP_BY_HOP | {"close", "x-a", "x-b"}


@pytest.mark.parametrize("name", ["Cache-Control", "vary", "DATE", "content-encoding"])
def test_connection_cannot_nominate_what_every_recipient_needs(name: str) -> None:
    assert hop_by_hop_names(Headers([("connection", name)])) == HOP_BY_HOP


@given(st.text(max_size=50))
def test_known_names_always_remain(value: str) -> None:
    assert hop_by_hop_names(Headers([("connection", value)])) >= HOP_BY_HOP
