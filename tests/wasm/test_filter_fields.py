"""Single rules of the filter against the sidecar's: names of fields, paths, normal forms of values."""

from __future__ import annotations

import pytest
from filter_rules import HANDED_ON, LOOKED_UP, Rules, header_list, needs_rules
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshcache.engine import admission
from meshcache.engine.key import RETARGETING, RETARGETING_SPELLED
from meshcache.engine.paths import ambiguous
from meshcache.message import Headers, Peer, Request
from meshcache.policy.trust import TrustRule, parse_network
from meshcache.rfc.vary import normalise
from meshcache.wasm.plan import PlanSettings, encode
from policy_texts import compiled, policies

pytestmark = needs_rules

SETTINGS = PlanSettings(secret=bytes(32), lease=10.0, budget=1 << 24, largest=1 << 16)
SPECIAL, JUDGED, RETARGETS = 1, 2, 3
"""Numbers of `fields.Kind`."""

# The bytes of which paths and values are made here: those that mean something, and a few that do not.
PATH = st.text("/.%;\\ 25eE6Ff0ca\x00\x7f\xc0\xae\xafx", max_size=24).map(lambda text: "/" + text)
VALUE = st.text('ab/*;=qQ.015,"\\ \t-XZ\xe9', max_size=30)


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules()


def test_fields_that_retarget_are_known(rules: Rules) -> None:
    for name in RETARGETING:
        # What `forwarded` says has a grammar of its own.
        assert rules.kind(name) == (JUDGED if name == "forwarded" else RETARGETS), name
    for name in RETARGETING_SPELLED - RETARGETING | {"x_any", "_", "a" * 40 + "_"}:
        # An origin may take it for another: the sidecar knows for which.
        assert rules.kind(name) == JUDGED, name
    for name in ("x-forwarded-for", "x-forwarded", "accept", "x-hos", "x-hosu", "via"):
        assert rules.kind(name) == 0, name


def test_fields_by_which_nothing_is_looked_up_are_known(rules: Rules) -> None:
    for name in (*admission._METHOD_OVERRIDES, "upgrade"):
        assert rules.kind(name) == SPECIAL, name
    assert rules.kind("te") == 0
    for name in (*admission._PRECONDITIONS, "authorization", "cache-control", "pragma", "range", "if-range"):
        assert rules.kind(name) == JUDGED, name
    # All others that admission minds.
    left = admission._MINDED - {*admission._METHOD_OVERRIDES, *admission._PRECONDITIONS, "upgrade"}
    assert left == {"content-type"}


@settings(max_examples=150, deadline=None)
@given(PATH)
@example("/a%20b/%C3%A9")
@example("/..%2f")
def test_a_path_that_is_plain_is_not_ambiguous(rules: Rules, path: str) -> None:
    if rules.plain(path.encode("latin-1")):
        assert not ambiguous(path)


@pytest.mark.parametrize("path", ["/", "//", "/v1/items/7", "/a.b/c.css", "/caf%C3%A9", "/a%20b;v=1/x", "/a\xc3\xa9"])
def test_usual_paths_are_plain(rules: Rules, path: str) -> None:
    assert rules.plain(path.encode("latin-1"))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["accept", "accept-encoding", "accept-language", "accept-charset", "x-any"]), VALUE)
@example("accept", ",".join(f"a{number}" for number in range(65)))
@example("accept-encoding", "x-gzip, gzip;q=1")
@example("accept", "a;q=1;q=1")
@example("accept", 'a;b="c,d", e')
@example("x-any", '"a,b , c')
def test_values_get_the_form_that_enters_the_key(rules: Rules, name: str, value: str) -> None:
    assert rules.normal(name, value.encode("latin-1")) == normalise(name, value).encode("latin-1")


NETWORKS = ("10.0.0.0/8", "2001:db8::/33", "192.0.2.7", "128.0.0.0/1")


@pytest.fixture(scope="module")
def trusting() -> Rules:
    """With a plan in force that shows all of `cache-status` to these networks."""
    rules = Rules()
    listed = ", ".join(f'"{network}"' for network in NETWORKS)
    config = f"trust: {{cacheStatus: {{from: [{{addresses: [{listed}]}}]}}}}"
    assert rules.load(encode(compiled(policies(config=config)), SETTINGS))
    return rules


ADDRESSES = st.one_of(
    st.ip_addresses(), st.ip_addresses(network="10.0.0.0/7"), st.ip_addresses(network="2001:db8::/31")
)


@settings(max_examples=150, deadline=None)
@given(ADDRESSES, st.booleans())
def test_peers_are_trusted_by_their_address(trusting: Rules, address: object, mapped: bool) -> None:
    text = f"::ffff:{address}" if mapped and ":" not in str(address) else str(address)
    expected = TrustRule(networks=map(parse_network, NETWORKS)).trusts(Peer(text))
    peer = f"[{text}]:80" if ":" in text else f"{text}:80"
    rule = trusting.decide(header_list(Request("GET", "h", "/")), address=peer)
    assert (rule.shown == "full") is expected


def test_an_odd_address_is_trusted_with_nothing(rules: Rules) -> None:
    forced = """
kind: CacheExperiment
metadata: {name: e}
spec:
  routeRef: {name: all}
  unit: [{header: x-user-id}]
  arms:
    - {name: one, policyRef: {name: p}, weight: 1}
    - {name: two, policyRef: {name: p}, weight: 0, force: [{header: x-canary, exact: v2}]}
"""
    trust = "{canaryHeader: {from: [{addresses: [10.0.0.0/8]}]}, cacheStatus: {from: [{addresses: [10.0.0.0/8]}]}}"
    assert rules.load(encode(compiled(policies(config=f"trust: {trust}", more=forced)), SETTINGS))
    request = header_list(Request("GET", "h", "/", Headers([("x-canary", "v2")])))
    for odd in ("/run/socket", "10.0.0.1", "10.0.0.01:80", "[10.0.0.1]:80", "::1:x", ""):
        rule = rules.decide(request, address=odd)
        assert (rule.what, rule.shown) == (HANDED_ON, "standard"), odd
    assert rules.decide(request).what == HANDED_ON
    found = rules.decide(request, address="10.9.9.9:80")
    assert (found.what, found.arm, found.shown) == (LOOKED_UP, "two", "full")
    assert rules.decide(request, address="11.9.9.9:80").arm == "one"


def test_the_date_of_a_copy_counts_for_nothing_beside_its_tag(rules: Rules) -> None:
    assert rules.load(encode(compiled(policies()), SETTINGS))
    date, tag = ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT"), ("if-none-match", '"e"')
    whats = [
        rules.decide(header_list(Request("GET", "h", "/", Headers(fields)))).what for fields in ([date], [date, tag])
    ]
    assert whats == [HANDED_ON, LOOKED_UP]


def test_who_has_a_verified_token_is_told_apart(rules: Rules) -> None:
    request = header_list(Request("GET", "h", "/"))
    assert rules.load(encode(compiled(policies()), SETTINGS))
    assert rules.decide(request, verified=True).what == HANDED_ON
    assert rules.decide(request).what == LOOKED_UP
