"""Whose answer may be given to whom: credentials, cookies, and what the origin says of privacy.

What is in the key tells callers apart and needs no further care. For the rest one rule holds: an answer that may be
meant for its caller alone is shared only for as long as its origin has said in so many words. A lifetime that somebody
else made up (a default, an override, a calculation) is not given to

- the answer to a request with cookies that the key does not hold,
- the answer to a request with `authorization`, which is shared only with the origin's leave (RFC 9111 section 3.5),
- an answer that sets a cookie: it begins somebody's session,

and an answer that has such a lifetime is not given to a caller with cookies. `public` and `s-maxage` are leave to
share, a `vary` that names the field tells the callers apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meshcache.engine.paths import type_mismatch
from meshcache.rfc.targeted import response_directives
from meshcache.rfc.vary import parse_vary

if TYPE_CHECKING:
    from meshcache.message import Headers
    from meshcache.policy.compiled import Freshness
    from meshcache.rfc.cache_control import CacheControl
    from meshcache.rfc.targeted import Directives

_FIRST_OTHER = 300


def directives_of(headers: Headers, policy: Freshness) -> Directives:
    """What an origin has said to this cache about a response, less what the policy ignores.

    A policy may ignore something only where its key holds the person, so that the cache is to each of them a cache of
    his own. Fields that a qualified `private` or `no-cache` names are left out of what is stored all the same.
    """
    said = response_directives(headers, policy.targets)
    if not policy.ignore:
        return said
    ignored = {name: False for name in ("no_store", "private", "no_cache") if name in policy.ignore}
    return said._replace(control=msgspec.structs.replace(said.control, **ignored))


def forbids(control: CacheControl) -> bool:
    """Whether a response may not be in a shared cache at all, whoever has put it there under other rules."""
    return control.private or (control.no_store and not control.must_understand)


def leaves_to_all(control: CacheControl) -> bool:
    """Whether the origin says of a response that everybody may have it."""
    return control.public or (control.s_maxage is not None and not control.invalid_lifetime)


def may_be_personal(request: Headers, response: Headers, control: CacheControl, policy: Freshness) -> bool:
    """Whether an answer may be meant for its caller alone, though nothing says so.

    `control` is what `directives_of` gives for `response`.
    """
    if policy.person_keyed or leaves_to_all(control):
        return False
    if "set-cookie" in response.names or "authorization" in request.names:
        return True
    return "cookie" in request.names and not policy.cookies_keyed and "cookie" not in parse_vary(response.get("vary"))


def disguised(
    path: str, status: int, request: Headers, response: Headers, control: CacheControl, policy: Freshness
) -> bool:
    """Whether an answer is a page or data under the name of a static file (web cache deception).

    An origin that gives a lifetime to shared caches by name has meant it; `public` is no such sign, as web servers are
    set up to say it by extension. Redirects and errors often have a body of their own kind: they are judged when the
    request had something by which the origin may know its caller.
    """
    if not policy.refuse_disguised or (control.s_maxage is not None and not control.invalid_lifetime):
        return False
    if status >= _FIRST_OTHER and "cookie" not in request.names and "authorization" not in request.names:
        return False
    return type_mismatch(path, response.get("content-type")) and response.names.isdisjoint(policy.targets)
