"""What a request's cache directives ask of a stored response (RFC 9111 section 5.2.1). Ages are seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcache.rfc.cache_control import CacheControl


def refuses(request_cc: CacheControl, *, age: float, lifetime: float, immutable: bool = False) -> bool:
    """Whether the client does not want a stored response of this age and lifetime without validation.

    So it is with `no-cache`, with an age above `max-age`, with less than `min-fresh` left of the lifetime, and for
    a stale response when the client has set `max-age` without `max-stale` (section 5.2.1.1) or a `max-stale` that
    it exceeds. It holds against stale-while-revalidate as well.

    While a response is fresh that its origin calls `immutable`, a reload (`max-age=0`) would bring the same again and
    does not count; `no-cache` does (RFC 8246 section 2.1).
    """
    if request_cc.no_cache:
        return True
    if request_cc.max_age is not None and age > request_cc.max_age and not (immutable and lifetime > age):
        return True
    if request_cc.min_fresh is not None and lifetime - age < request_cc.min_fresh:
        return True
    if lifetime > age:
        return False
    if request_cc.max_stale is None:
        return request_cc.max_age is not None
    return age - lifetime > request_cc.max_stale


def insists(request_cc: CacheControl) -> bool:
    """Whether the client does not want a stored response, however fresh it is."""
    return request_cc.no_cache or request_cc.max_age == 0


def accepts_stale(request_cc: CacheControl, *, age: float, lifetime: float) -> bool:
    """Whether `max-stale` asks for a response that is this stale (section 5.2.1.2).

    The origin has the last word: it counts only where `stale.may_serve_stale` holds.
    """
    return (
        request_cc.max_stale is not None
        and age - lifetime <= request_cc.max_stale
        and not refuses(request_cc, age=age, lifetime=lifetime)
    )
