"""Tokens out of the metadata that Envoy's JWT filter leaves."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from meshcache.envoy import filters
from meshcache.extproc import verified, wire

CLAIMS = {"iss": "https://issuer.example", "sub": "alice", "org": "acme", "scope": ["read", "write"], "exp": 4685989700}


def message(metadata: dict[str, Any] | None = None, *, authorization: str = "", name: str = "") -> ProcessingRequest:
    made = ProcessingRequest()
    fields = {":method": "GET", ":path": "/a", ":authority": "example.com", ":scheme": "http"}
    if authorization:
        fields["authorization"] = authorization
    for key, value in fields.items():
        made.request_headers.headers.headers.add(key=key, raw_value=value.encode())
    if metadata is not None:
        made.metadata_context.filter_metadata[name or verified.NAMESPACE].update(metadata)
    return ProcessingRequest.FromString(made.SerializeToString())


def standing(claims: dict[str, Any]) -> bytes:
    (token,) = wire.request_of(message({"payload": claims})).tokens
    return token.standing


def test_envoy_is_told_to_send_what_is_read() -> None:
    assert verified.NAMESPACE == filters.JWT_METADATA


@pytest.mark.parametrize("key", ["payload", "https://issuer.example", "my provider"])
def test_a_payload_is_found_under_whatever_key(key: str) -> None:
    (token,) = wire.request_of(message({key: CLAIMS})).tokens
    assert token.issuer == "https://issuer.example"
    assert token.claims == {"iss": token.issuer, "sub": "alice", "org": "acme", "exp": "4685989700"}


@pytest.mark.parametrize("metadata", [None, {}, {"status": "x", "code": 3, "list": [{"sub": "mallory"}], "none": None}])
def test_what_is_no_payload_is_no_token(metadata: dict[str, Any] | None) -> None:
    assert wire.request_of(message(metadata)).tokens == ()


def test_other_filters_vouch_for_nobody() -> None:
    request = wire.request_of(message({"payload": CLAIMS}, name="envoy.filters.http.lua"))
    assert request.tokens == ()
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (7, "7"),
        (-7, "-7"),
        (2**53 - 1, str(2**53 - 1)),
        (2**53, None),
        (2**53 + 1, None),
        (1.5, None),
        (True, None),
        (None, None),
    ],
)
def test_numbers_count_only_where_two_of_them_cannot_read_the_same(value: object, read: str | None) -> None:
    (token,) = wire.request_of(message({"payload": {"org": value}})).tokens
    assert token.claims.get("org") == read


def test_the_standing_of_a_token_is_all_but_its_dates_and_numbers() -> None:
    same = CLAIMS | {"exp": 1, "iat": 2, "nbf": 3, "jti": "x", "nonce": "y"}
    assert standing(CLAIMS) == standing(same)
    assert standing(CLAIMS) == standing(dict(reversed(CLAIMS.items())))
    for less in ({"scope": ["read"]}, {"scope": "read write"}, {"azp": "app"}, {"roles": []}, {"acr": "1"}):
        assert standing(CLAIMS | less) != standing(CLAIMS)


def test_credentials_that_envoy_has_taken_out_are_seen_as_authorization() -> None:
    # Istio's default is not to forward a token that it has verified.
    one = wire.request_of(message({"payload": CLAIMS})).headers
    other = wire.request_of(message({"payload": CLAIMS | {"sub": "bob"}})).headers
    assert one.get("authorization") == wire.request_of(message({"payload": CLAIMS})).headers.get("authorization")
    assert one.get("authorization") != other.get("authorization")
    assert "alice" not in (one.get("authorization") or "")
    assert wire.request_of(message()).headers.get("authorization") is None


def test_credentials_that_are_there_stay_as_they_are() -> None:
    request = wire.request_of(message({"payload": CLAIMS}, authorization="Bearer abc"))
    assert request.headers.get_all("authorization") == ["Bearer abc"]


def test_a_certificate_counts_when_envoy_says_that_there_is_one() -> None:
    made = message()
    attributes = made.attributes["envoy.filters.http.ext_proc"]
    attributes.update({"source.address": "10.0.0.1:5", "connection.uri_san_peer_certificate": "spiffe://a"})
    assert wire.request_of(made).peer.uri == ""
    attributes.update({"connection.mtls": True, "connection.subject_peer_certificate": "CN=a"})
    peer = wire.request_of(made).peer
    assert (peer.address, peer.mtls, peer.uri, peer.dns, peer.subject) == ("10.0.0.1", True, "spiffe://a", "", "CN=a")
