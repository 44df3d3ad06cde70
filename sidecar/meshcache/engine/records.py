"""What is stored: a whole response with what is needed to judge it later, or the list of a resource's variants.

A record says what the origin said and when. It holds no judgement: freshness is decided at look-up by the
policy then in force.
"""

from __future__ import annotations

import msgspec


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


class VariantIndex(msgspec.Struct, tag="v", frozen=True, array_like=True):
    """The sets of request fields by which one resource's responses have varied, newest first (RFC 9111 4.1)."""

    key: bytes
    field_sets: tuple[tuple[str, ...], ...]


Record = StoredResponse | VariantIndex
