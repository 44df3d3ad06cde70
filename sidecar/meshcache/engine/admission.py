"""Whether a request is looked up at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import BypassReason

if TYPE_CHECKING:
    from meshcache.message import Request

_METHOD_OVERRIDES = ("x-http-method-override", "x-http-method", "x-method-override")
_PRECONDITIONS = ("if-match", "if-unmodified-since")


def effective_method(request: Request) -> str:
    """The method by which the origin may act: many frameworks let a field of the request change it.

    Only GET and HEAD are looked at: what already counts as unsafe stays so.
    """
    if request.method in ("GET", "HEAD"):
        for name in _METHOD_OVERRIDES:
            named = request.headers.get(name)
            if named:
                return named.strip().upper()
    return request.method


def bypass_reason(request: Request) -> BypassReason | None:
    """Why `request` must go to the origin whatever is stored, or None.

    Says nothing of routes and policies: only of what the message itself is.
    """
    headers = request.headers
    if not request.path.startswith("/") or not request.authority:
        # `OPTIONS *`, CONNECT and requests with no host have no target that a key could name.
        return BypassReason.BAD_REQUEST
    if "upgrade" in headers:
        return BypassReason.UPGRADE
    content_type = headers.get("content-type")
    if content_type is not None and content_type.lower().startswith("application/grpc"):
        return BypassReason.GRPC
    if request.method not in ("GET", "HEAD") or effective_method(request) != request.method:
        return BypassReason.METHOD
    if not request.complete:
        # The body could change the answer, and it is no part of the key.
        return BypassReason.REQUEST_BODY
    if "range" in headers:
        return BypassReason.RANGE
    for name in _PRECONDITIONS:
        if name in headers:
            return BypassReason.PRECONDITION
    return None
