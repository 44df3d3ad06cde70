import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.decisions import MissReason
from meshcache.rfc.cache_status import append, forwarded, hit, sf_string

SF_STRING = re.compile(r'"(?:[ !#-\[\]-~]|\\["\\])*"')


def test_hit() -> None:
    assert hit() == "meshcache; hit"
    assert hit(ttl=30.9) == "meshcache; hit; ttl=30"
    assert hit(ttl=-0.5, detail="hot/candidate") == 'meshcache; hit; ttl=-1; detail="hot/candidate"'


def test_forwarded() -> None:
    assert forwarded("uri-miss") == "meshcache; fwd=uri-miss"
    assert forwarded("uri-miss", stored=True, ttl=60) == "meshcache; fwd=uri-miss; stored; ttl=60"
    assert forwarded("stale", status=304, detail="x") == 'meshcache; fwd=stale; fwd-status=304; detail="x"'


@pytest.mark.parametrize("reason", list(MissReason))
def test_reasons_of_a_miss_appear_under_their_own_name(reason: MissReason) -> None:
    assert forwarded(reason) == f"meshcache; fwd={reason.value}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", '""'), ('a"b\\c', r'"a\"b\\c"'), ("a\r\nb\x00\x7f", '"a??b??"'), ("zwölf €", '"zw?lf ?"')],
)
def test_sf_string(text: str, expected: str) -> None:
    assert sf_string(text) == expected


@given(st.text(max_size=50))
def test_any_text_becomes_a_valid_string(text: str) -> None:
    assert SF_STRING.fullmatch(sf_string(text))


@given(st.floats())
def test_ttl_is_always_an_integer_of_structured_fields(ttl: float) -> None:
    assert re.fullmatch(r"meshcache; hit; ttl=-?[0-9]{1,15}", hit(ttl=ttl))


def test_append() -> None:
    assert append(None, hit()) == "meshcache; hit"
    assert append("", hit()) == "meshcache; hit"
    assert append("origin-cache; hit", hit()) == "origin-cache; hit, meshcache; hit"
