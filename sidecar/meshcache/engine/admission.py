"""Whether a request is looked up at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import BypassReason
from meshcache.engine.paths import ambiguous
from meshcache.message import LONGEST_AUTHORITY
from meshcache.rfc.invalidation import is_unsafe
from meshcache.rfc.spelling import spellings

if TYPE_CHECKING:
    from meshcache.message import Request

_OVERRIDES = ("x-http-method-override", "x-http-method", "x-method-override")
_METHOD_OVERRIDES = (*_OVERRIDES, *sorted(spellings(_OVERRIDES).difference(_OVERRIDES)))
_PRECONDITIONS = spellings(("if-match", "if-unmodified-since"))
_MINDED = frozenset({"upgrade", "content-type", *_METHOD_OVERRIDES, *_PRECONDITIONS})
"""All fields by which a request may not be looked up."""


def effective_method(request: Request) -> str:
    """The method by which the origin may act: many frameworks let a field of the request change it.

    Only GET and HEAD are looked at: what already counts as unsafe stays so. Which of several fields an origin minds,
    nobody knows: an unsafe one counts, then one that is another than the request's.
    """
    method = request.method
    if method not in ("GET", "HEAD") or request.headers.names.isdisjoint(_METHOD_OVERRIDES):
        return method
    found = method
    for name in _METHOD_OVERRIDES:
        # Of blanks as HTTP has them: what else is about it makes it another method.
        named = (request.headers.get(name) or method).strip(" \t").upper()
        if is_unsafe(named):
            return named
        if named != method:
            found = named
    return found


def bypass_reason(request: Request) -> BypassReason | None:
    """Why `request` must go to the origin whatever is stored, or None.

    Says nothing of routes and policies: only of what the message itself is.
    """
    names = request.headers.names
    if not request.path.startswith("/") or not 0 < len(request.authority) <= LONGEST_AUTHORITY:
        # `OPTIONS *`, CONNECT and requests without a host, or with what cannot be one, have no target to be keyed.
        return BypassReason.BAD_REQUEST
    # As a rule a request has none of these, which is seen at once.
    plain = names.isdisjoint(_MINDED)
    if not plain:
        if "upgrade" in names:
            return BypassReason.UPGRADE
        if _is_grpc(request.headers.get("content-type")):
            return BypassReason.GRPC
    if request.method not in ("GET", "HEAD") or (not plain and effective_method(request) != request.method):
        return BypassReason.METHOD
    if ambiguous(request.path):
        return BypassReason.AMBIGUOUS_PATH
    if not request.complete:
        # The body could change the answer, and it is no part of the key.
        return BypassReason.REQUEST_BODY
    return None if plain or names.isdisjoint(_PRECONDITIONS) else BypassReason.PRECONDITION


def _is_grpc(content_type: str | None) -> bool:
    """Whether this is gRPC's own media type (`application/grpc`, `application/grpc+proto`), not gRPC-Web's."""
    if content_type is None:
        return False
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/grpc" or media_type.startswith("application/grpc+")
