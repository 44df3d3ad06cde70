"""What is stored: a whole response with what is needed to judge it later, or the list of a resource's variants.

A record says what the origin said and when. It holds no judgement: freshness is decided at look-up by the
policy then in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshcache.decisions import TierName
    from meshcache.engine.epochs import Epochs
    from meshcache.engine.judge import Judgement
    from meshcache.policy.compiled import Eviction, Tiers


class StoredResponse(msgspec.Struct, tag="r", frozen=True, array_like=True):
    """One origin response, fit to be replayed.

    `fields` are the response's header fields that may be stored (RFC 9111 section 3.1): no hop-by-hop fields,
    no `set-cookie`, no internal fields, no `age`.
    """

    key: bytes
    """The whole key material (not its digest): compared in full at look-up, so that a hash collision is a miss."""
    selecting: tuple[tuple[str, str | None], ...]
    """The request fields that the response varies on, with the values of the request that was answered."""
    status: int
    fields: tuple[tuple[str, str], ...]
    request_time: float
    """Unix seconds at which the request for it was sent."""
    response_time: float
    """Unix seconds at which the response head arrived."""
    initial_age: float
    """`age` field of the origin's response in seconds (0 when absent): time spent in caches above."""
    authorized: bool
    """Whether the request that was answered carried `authorization`."""
    body: bytes
    """Empty when the body is stored in `chunks`."""
    uri: str = ""
    """Scheme, authority, path and query as the client asked for them: what it is purged by."""
    route: str = ""
    """The route under whose policy it was stored; empty for none."""
    subject: bytes = b""
    """Keyed hash of the person it is for; empty when it is for everybody."""
    revision: str = ""
    """The application's release that answered."""
    tags: tuple[str, ...] = ()
    """By which it is purged together with others (`rfc.tags`)."""
    spans: tuple[tuple[int, int], ...] = ()
    """Of a part (status 206): first and last position of each run of bytes that `body` holds; see `engine.parts`."""
    total: int = -1
    """Of a part: bytes of the whole representation; negative when nobody has said."""
    chunks: tuple[bytes, ...] = ()
    """Digests of the chunks of a body that is too long to be stored in here (`engine.chunks`), in order."""
    size: int = 0
    """Bytes of the body that `chunks` make up."""
    chunk_bytes: int = 0
    """Bytes of every chunk but the last."""

    personal: bool = False
    """Whether it may be meant for its caller alone, so that only its origin's word counts for how long it is shared."""

    @property
    def length(self) -> int:
        """Bytes of the whole body."""
        return self.size or len(self.body)


class VariantIndex(msgspec.Struct, tag="v", frozen=True, array_like=True):
    """The sets of request fields by which one resource's responses have varied, newest first (RFC 9111 4.1)."""

    key: bytes
    field_sets: tuple[tuple[str, ...], ...]
    route: str = ""
    """As of the variants, which share it with the key; so do the next two."""
    subject: bytes = b""
    revision: str = ""
    tags: tuple[str, ...] = ()
    """Those that all variants have had: a purge of one of them leaves none."""


Record = StoredResponse | VariantIndex


class Entry(msgspec.Struct, frozen=True):
    """A record on its way into the tiers: under which key, where to, for how long."""

    key: bytes
    """Storage key."""
    resource: bytes
    """Resource id (16 bytes), by which it is invalidated."""
    record: Record
    tiers: Sequence[TierName]
    """Where it is to go."""
    limits: Tiers
    epochs: Epochs
    """Of the resource, read before the origin was asked."""
    now: float
    """Unix seconds from which its residence counts."""
    expires_in: float
    """For how many seconds it can be of any use (freshness and stale window); residence ends no later."""
    eviction: Eviction
    """Its pool in memory."""
    judgement: Judgement | None = None
    """How the policy sees the record, if that is known: kept beside it in memory."""
    yields_to: Callable[[StoredResponse], bool] | None = None
    """Tells of what a lower tier holds under the key whether it is to stay instead; None: it need not be looked at."""
