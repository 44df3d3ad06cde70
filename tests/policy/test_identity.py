"""Who a caller is, and the border that follows: only what Envoy has verified counts, and doubt means nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.message import Headers, Peer, Request, Token
from meshcache.policy.compiled import KeySpec
from meshcache.policy.identity import Identities, IdentityRules, IdentitySource, Named, named, subject_hash

SUB = IdentitySource("jwtClaim", "sub")
ORG = IdentitySource("jwtClaim", "org")
SID = IdentitySource("cookie", "sid")
RULES = IdentityRules(subject=SUB, tenant=ORG, session=SID)
SECRET = b"s" * 32


def token(issuer: str = "https://issuer.example", standing: bytes = b"x" * 16, **claims: str) -> Token:
    return Token(issuer, claims, standing)


def asking(*tokens: Token, peer: Peer | None = None, **fields: str) -> Request:
    return Request("GET", "example.com", "/a", Headers(fields.items()), peer=peer or Peer(), tokens=tokens)


def border(request: Request, *parts: str, rules: IdentityRules = RULES, secret: bytes = SECRET) -> object:
    spec = KeySpec(
        partition_tenant="tenant" in parts,
        partition_subject="subject" in parts,
        partition_session="session" in parts,
    )
    return Identities(rules, secret).border(request, spec)


def test_a_claim_names_the_caller_together_with_its_issuer() -> None:
    assert named(SUB, asking(token(sub="alice"))) == Named("alice", "https://issuer.example")


@pytest.mark.parametrize(
    "request_",
    [
        asking(),
        asking(token(org="acme")),
        asking(token(sub="")),
        asking(token(sub="a" * 513)),
        asking(token("i" * 513, sub="alice")),
        asking(token(sub="alice"), token(sub="bob")),
        asking(token(sub="alice"), token("https://other.example", sub="alice")),
        asking(authorization="Bearer abc", sub="alice"),
    ],
    ids=["no token", "no claim", "empty", "long", "long issuer", "two people", "two issuers", "only headers"],
)
def test_a_claim_that_is_not_there_once_names_nobody(request_: Request) -> None:
    assert named(SUB, request_) is None


def test_a_token_beside_it_that_says_nothing_of_the_claim_does_not_matter() -> None:
    assert named(SUB, asking(token(alg="RS256"), token(sub="alice"))) == Named("alice", "https://issuer.example")


@pytest.mark.parametrize(
    ("part", "value"), [("uri", "spiffe://td/ns/a/sa/b"), ("dns", "b.a"), ("subject", "CN=b, O=c")]
)
def test_a_peer_is_named_by_its_verified_certificate(part: str, value: str) -> None:
    source = IdentitySource("mtlsPeer", part)
    known = Peer("10.0.0.1", True, "spiffe://td/ns/a/sa/b", "b.a", "CN=b, O=c")
    assert named(source, asking(peer=known)) == Named(value)
    assert named(source, asking(peer=Peer("10.0.0.1", False, value, value, value))) is None
    assert named(source, asking(peer=Peer("10.0.0.1", True))) is None
    forged = {"x-forwarded-client-cert": f"URI={value}"}
    assert named(source, asking(**forged)) is None


@pytest.mark.parametrize(
    ("cookies", "value"),
    [
        ("sid=1", "1"),
        ("a=2; sid=1", "1"),
        ("sid=1; sid=1", "1"),
        ("sid=1; sid=2", None),
        ("sid=", None),
        ("asid=1", None),
        # Some origins read another cookie for it: by other capitals, as a list, escaped, with a blank.
        ("sid=1; SID=2", None),
        ("Sid=2; sid=1", None),
        ("SID=1", None),
        ("sid=1; sid[]=2", None),
        ("sid=1; sid[a]=2", None),
        ("sid=1; s%69d=2", None),
        ("sid=1; sid =2", None),
        # To some it is in quotes, and to others behind a comma or a blank.
        ('x="; sid=1; y="', None),
        ('x="a; sid=1', None),
        ('x="a\\"; sid=1; y="', None),
        ("sid=1; x=a,sid=2", None),
        ("sid=1; x=a sid=2", None),
        ('sid="1; 2"', None),
        # What is odd and hides nothing says nothing of it.
        ('x="a b"; sid=1', "1"),
        ("x=a,b; sid=1", "1"),
        ("sid=a,b", "a,b"),
        ("sid=1 ; x=2", "1 "),
        ("sid=1; sidx=2; sid_x=3; sid.x=4", "1"),
    ],
)
def test_a_session_is_the_one_value_of_its_cookie(cookies: str, value: str | None) -> None:
    # Which of two the origin believes is not known: someone could have planted one of them.
    found = named(SID, asking(cookie=cookies))
    assert found == (None if value is None else Named(value))


@pytest.mark.parametrize("part", ["tenant", "subject", "session"])
def test_who_is_not_known_has_no_border(part: str) -> None:
    assert border(asking(), part) is None
    assert border(asking(), part, rules=IdentityRules()) is None


def test_every_border_has_to_be_known() -> None:
    everything = asking(token(sub="alice", org="acme"), cookie="sid=1")
    assert border(everything, "tenant", "subject", "session") is not None
    assert border(asking(token(sub="alice"), cookie="sid=1"), "tenant", "subject", "session") is None


def test_what_the_store_sees_of_a_person_is_a_keyed_hash() -> None:
    found = Identities(RULES, SECRET).border(asking(token(sub="alice", org="acme")), KeySpec(partition_subject=True))
    assert found is not None
    assert b"alice" not in b"".join(found.parts) + found.subject
    assert found.subject == subject_hash(SECRET, "alice")
    assert found.subject != subject_hash(b"another", "alice")
    other = Identities(RULES, b"another").border(asking(token(sub="alice")), KeySpec(partition_subject=True))
    assert other is not None
    assert other.parts != found.parts


def test_a_token_that_may_do_less_is_another_caller_and_the_same_person() -> None:
    spec = KeySpec(partition_subject=True)
    full, less = (
        Identities(RULES, SECRET).border(asking(token(sub="alice", standing=standing)), spec)
        for standing in (b"a", b"b")
    )
    assert full is not None
    assert less is not None
    assert full.parts != less.parts
    assert full.subject == less.subject


def test_the_same_name_by_another_issuer_is_another_person() -> None:
    callers = [asking(token(issuer, sub="alice", org="acme")) for issuer in ("https://a", "https://b", "")]
    for part in ("subject", "tenant"):
        assert len({border(caller, part) for caller in callers}) == 3


def test_an_edit_of_what_names_callers_makes_no_two_of_them_one() -> None:
    caller = asking(token(sub="same", org="same", team="same"), cookie="sid=same")
    for part in ("tenant", "subject", "session"):
        sources = (ORG, IdentitySource("jwtClaim", "team"))
        drawn = {border(caller, part, rules=IdentityRules(source, source, source)) for source in sources}
        assert len(drawn) == 2


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(one=st.tuples(TEXT, TEXT, TEXT), other=st.tuples(TEXT, TEXT, TEXT))
def test_two_callers_have_one_border_only_when_all_that_names_them_agrees(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    def drawn(issuer: str, subject: str, tenant: str) -> object:
        return border(asking(token(issuer, sub=subject, org=tenant)), "tenant", "subject")

    assert (drawn(*one) == drawn(*other)) == (one == other)
