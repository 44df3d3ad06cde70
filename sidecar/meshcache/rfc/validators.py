"""Which stored responses the origin can be asked about (RFC 9110 sections 13.2.1 and 15.4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcache.message import Headers

_WITH_CONTENT_OF_ITS_OWN = frozenset({200, 203, 206})


def can_be_validated(status: int, headers: Headers) -> bool:
    """Whether a stored response of this status and these fields can be renewed by a 304.

    A 304 says that the request would have got 200 with the content that its validator names, and so that any part of it
    (206) is still right. It says nothing for a stored 404 or redirect, even one with an `etag`: an origin ignores
    conditions on what is no success.
    """
    return status in _WITH_CONTENT_OF_ITS_OWN and ("etag" in headers.names or "last-modified" in headers.names)
