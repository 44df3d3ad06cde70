"""Fields that speak of one connection only (RFC 9110 section 7.6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.rfc.fields import split_list

if TYPE_CHECKING:
    from meshcache.message import Headers

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Removed before forwarding whether or not `connection` names them.

`trailer` is among them because trailer fields are not kept (RFC 9111 section 3.1), so nothing may announce them.
"""

# Meant for every recipient: naming one as a connection option is an error of the sender (RFC 9110 section 7.6.1),
# and giving in to it would strip a response of what it is judged and read by.
_END_TO_END = frozenset(
    {
        "age",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "date",
        "etag",
        "expires",
        "last-modified",
        "location",
        "vary",
    }
)


def hop_by_hop_names(headers: Headers) -> frozenset[str]:
    """The lower-case names of the fields that may not go past this hop: the known ones and those nominated."""
    connection = headers.get("connection")
    if connection is None:
        return HOP_BY_HOP
    return HOP_BY_HOP.union(split_list(connection.lower())) - _END_TO_END
