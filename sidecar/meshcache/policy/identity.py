"""Who a caller is, by what Envoy has verified, and the border in the cache key that follows from it.

A claim means what its issuer says: the same `sub` of two issuers is two people, so the issuer stands beside the
value in every border. A border by subject also holds the standing of the token (scopes, roles, client): a token
of the same person that may see less is another caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

from meshcache.lookalikes import one_value

if TYPE_CHECKING:
    from meshcache.message import Peer, Request, Token
    from meshcache.policy.compiled import KeySpec

_LONGEST = 512
"""Characters of a value that names somebody; what is longer names nobody."""


@dataclass(frozen=True, slots=True)
class IdentitySource:
    """Where it stands who somebody is."""

    kind: Literal["jwtClaim", "mtlsPeer", "cookie"]
    name: str
    """The claim, the cookie, or `uri`, `dns` or `subject` of the peer's certificate."""

    @property
    def mark(self) -> bytes:
        """Stands in a border before the value, so that an edit of the source never makes two callers one."""
        return f"{self.kind}:{self.name}".encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class IdentityRules:
    """`CacheConfig.spec.identity`; None where the installation does not say."""

    subject: IdentitySource | None = None
    tenant: IdentitySource | None = None
    session: IdentitySource | None = None


class Named(NamedTuple):
    """A value that names somebody, and who vouches for it (empty for a peer's certificate and for cookies)."""

    value: str
    issuer: str = ""


class Border(NamedTuple):
    """The parts of a key that keep callers apart."""

    parts: tuple[bytes, ...] = ()
    subject: bytes = b""
    """Keyed hash of the person whose answers lie behind it, see `subject_hash`; empty where the key holds no person."""


OPEN = Border()
"""No border but those that every key has."""


class Identities:
    """Borders for the requests of one installation."""

    def __init__(self, rules: IdentityRules, secret: bytes) -> None:
        """`secret` is the installation's; a key of its own is derived and kept, not the secret."""
        self.rules = rules
        self._key = _derived(secret)

    def border(self, request: Request, spec: KeySpec) -> Border | None:
        """The border that `spec` draws around the caller, or None when it is not known who he is."""
        parts: list[bytes] = []
        subject = b""
        if spec.partition_tenant:
            tenant = named(self.rules.tenant, request)
            if tenant is None:
                return None
            parts += (_mark(self.rules.tenant), _encoded(tenant.issuer), _encoded(tenant.value))
        if spec.partition_subject:
            person = named(self.rules.subject, request)
            if person is None:
                return None
            standing = b"".join(sorted(token.standing for token in request.tokens))
            parts.append(_hash(self._key, b"border", _mark(self.rules.subject), person, standing))
            subject = _subject(self._key, person.value)
        if spec.partition_session:
            session = named(self.rules.session, request)
            if session is None:
                return None
            parts.append(_hash(self._key, b"session", _mark(self.rules.session), session))
        return Border(tuple(parts), subject)


def subject_hash(secret: bytes, subject: str) -> bytes:
    """What stored answers keep of the person they are for (16 bytes): `subject` under the installation's secret.

    The issuer is left out, so that a purge by a claim's value reaches the people of that name under every issuer.
    """
    return _subject(_derived(secret), subject)


def named(source: IdentitySource | None, request: Request) -> Named | None:
    """Whom `source` names for `request`; None when nobody, or not one and the same by all tokens."""
    if source is None:
        return None
    if source.kind == "jwtClaim":
        return _by_claim(request.tokens, source.name)
    # Of a cookie in doubt nobody knows which one the origin believes.
    value = (
        _by_peer(request.peer, source.name) if source.kind == "mtlsPeer" else one_value(request.headers, source.name)
    )
    return Named(value) if value and len(value) <= _LONGEST else None


def _by_claim(tokens: tuple[Token, ...], claim: str) -> Named | None:
    found = {Named(token.claims[claim], token.issuer) for token in tokens if claim in token.claims}
    if len(found) != 1:
        return None
    name = found.pop()
    return name if name.value and len(name.value) <= _LONGEST and len(name.issuer) <= _LONGEST else None


def _by_peer(peer: Peer, part: str) -> str:
    if not peer.mtls:
        return ""
    return {"uri": peer.uri, "dns": peer.dns, "subject": peer.subject}.get(part, "")


def _derived(secret: bytes) -> bytes:
    return blake2b(secret, digest_size=32, person=b"meshcache person").digest()


def _subject(key: bytes, value: str) -> bytes:
    return _hash(key, b"subject", b"", Named(value))


def _mark(source: IdentitySource | None) -> bytes:
    return b"" if source is None else source.mark


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hash(key: bytes, use: bytes, mark: bytes, whom: Named, more: bytes = b"") -> bytes:
    parts = (use, mark, _encoded(whom.issuer), _encoded(whom.value), more)
    joined = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return blake2b(joined, digest_size=16, key=key).digest()
