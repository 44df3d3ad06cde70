"""Tokens that a test signs itself, and an Envoy filter that verifies them (RFC 7515, HMAC with SHA-256)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.config.route.v3 import RouteMatch
from envoy_data_plane.envoy.extensions.filters.http.jwt_authn.v3 import (
    JwtAuthentication,
    JwtProvider,
    JwtProviderNormalizePayload,
    JwtRequirement,
    JwtRequirementOrList,
    RequirementRule,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.google.protobuf import Empty

from meshcache.envoy.render import pack

FIRST, SECOND = "https://first.example", "https://second.example"
KEYS = {FIRST: b"1" * 32, SECOND: b"2" * 32}
"""Issuers and what they sign with."""
PAYLOAD = "x-jwt-payload"
"""Where an origin finds the verified payload, whether or not the token is forwarded."""


def _coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(claims: dict[str, object], key: bytes, algorithm: str = "HS256") -> str:
    """A token in its compact form."""
    head = {"alg": algorithm, "typ": "JWT"}
    signing = f"{_coded(json.dumps(head).encode())}.{_coded(json.dumps(claims).encode())}"
    mac = hmac.digest(key, signing.encode(), hashlib.sha256) if algorithm == "HS256" else b""
    return f"{signing}.{_coded(mac)}"


def token(sub: str, org: str, *, issuer: str = FIRST, **claims: object) -> str:
    """A valid token, never twice the same."""
    now = time.time()
    dated = {"iat": int(now), "exp": int(now) + 3600, "jti": f"{now:.9f}"}
    return signed({"iss": issuer, "sub": sub, "org": org, **dated, **claims}, KEYS[issuer])


def bearer(sub: str, org: str, **more: object) -> dict[str, str]:
    """The header with which a caller shows who he is."""
    return {"authorization": f"Bearer {token(sub, org, **more)}"}  # type: ignore[arg-type]


def claims_of(payload: str | None) -> dict[str, object]:
    """What an origin reads in `PAYLOAD`; nothing for a request without a token."""
    if payload is None:
        return {}
    read: dict[str, object] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return read


def verifying(*, forward: bool = True, metadata: str = "payload") -> HttpFilter:
    """Envoy's JWT filter as Istio sets it up: who has no token passes, who has a wrong one does not."""
    providers = {}
    for number, (issuer, key) in enumerate(KEYS.items()):
        jwks = {"keys": [{"kty": "oct", "alg": "HS256", "k": _coded(key)}]}
        providers[f"origins-{number}"] = JwtProvider(
            issuer=issuer,
            local_jwks=DataSource(inline_string=json.dumps(jwks)),
            forward=forward,
            forward_payload_header=PAYLOAD,
            payload_in_metadata=metadata or issuer,
            normalize_payload_in_metadata=JwtProviderNormalizePayload(space_delimited_claims=["scope"]),
        )
    known = [JwtRequirement(provider_name=name) for name in providers]
    anyone = JwtRequirementOrList(requirements=[*known, JwtRequirement(allow_missing=Empty())])
    rule = RequirementRule(match=RouteMatch(prefix="/"), requires=JwtRequirement(requires_any=anyone))
    return HttpFilter(
        name="envoy.filters.http.jwt_authn", typed_config=pack(JwtAuthentication(providers=providers, rules=[rule]))
    )
