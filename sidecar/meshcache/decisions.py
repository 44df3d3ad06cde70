"""Every decision the cache takes, by the one name it has in code, Cache-Status, metrics, logs and `explain`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Decision(StrEnum):
    """What was done with a request."""

    HIT = "hit"
    STALE_SWR = "stale-swr"
    """Answered stale at once while one refresh runs in the background (RFC 5861 section 3)."""
    STALE_IF_ERROR = "stale-if-error"
    """Answered stale because the origin failed (RFC 5861 section 4)."""
    COMPLETED = "completed"
    """Part of the answer was stored, and the origin was asked for the rest of it."""
    REFETCHED = "refetched"
    """The origin said 304 for something else than what is stored, was asked once more, and its answer was sent."""
    MISMATCH = "mismatch"
    """Answered 502: the origin said 304 for something else than what is stored, and nobody has the right answer."""
    REVALIDATED = "revalidated"
    """The origin said 304, or a 200 to HEAD that fits it, and the stored answer was sent."""
    COLLAPSED = "collapsed"
    """Answered with what another request for the same key, under way at the same time, has fetched."""
    ONLY_IF_CACHED = "only-if-cached"
    """Answered 504 by the cache: the client wants nothing fetched, and nothing stored may be used (RFC 9111 section
    5.2.1.7)."""
    MISS = "miss"
    """Sent to the origin: nothing stored could be used."""
    REVALIDATE = "revalidate"
    """Sent to the origin with a validator: something stored may be used again."""
    BYPASS = "bypass"
    """Sent to the origin without asking the cache."""


class BypassReason(StrEnum):
    """Why a request was not looked up."""

    NO_ROUTE = "no-route"
    ROUTE_NOT_CACHED = "route-not-cached"
    METHOD = "method"
    UPGRADE = "upgrade"
    GRPC = "grpc"
    REQUEST_BODY = "request-body"
    PRECONDITION = "precondition"
    """`if-match` and `if-unmodified-since` are for the origin alone (RFC 9110 section 13.1)."""
    BAD_REQUEST = "bad-request"
    AMBIGUOUS_PATH = "ambiguous-path"
    """The origin may take the path for another one than the routes and the key do."""
    NO_POLICY = "no-policy"
    CROWDED = "crowded"
    """So many large answers are on their way that Envoy might not have the memory for one more."""
    NO_IDENTITY = "no-identity"
    """The key holds who the caller is, and Envoy has not said."""


class MissReason(StrEnum):
    """Why nothing stored could answer; the values are RFC 9211 section 2.2 `fwd` values."""

    URI_MISS = "uri-miss"
    VARY_MISS = "vary-miss"
    STALE = "stale"
    PARTIAL = "partial"
    """Part of the answer is stored, and it is not enough."""
    REQUEST = "request"
    """The request asked for the origin's own answer (`no-cache`, `max-age`, ...)."""


class NoStoreReason(StrEnum):
    """Why a response was not stored."""

    METHOD = "method"
    STATUS = "status"
    REQUEST_NO_STORE = "request-no-store"
    RESPONSE_NO_STORE = "response-no-store"
    PRIVATE = "private"
    AUTHORIZATION = "authorization"
    COOKIE = "cookie"
    """A visitor's cookie, or a new one for him, may have made it, and its origin gives it no lifetime of its own."""
    HOST_SPELLING = "host-spelling"
    """The host was written in an unusual way, and the answer is no success: the usual way might have got another."""
    TYPE_MISMATCH = "type-mismatch"
    """A page or data under the name of a static file: web cache deception looks like that."""
    VARY_STAR = "vary-star"
    NO_FRESHNESS = "no-freshness"
    """Nothing gives it a lifetime, or its time was over before it could be stored and nobody may take it stale."""
    PARTIAL = "partial"
    LOCAL_REPLY = "local-reply"
    TOO_LARGE = "too-large"
    TRUNCATED = "truncated"
    UNDELIMITED = "undelimited"
    """It ends with its connection, so nothing tells its end from a break in the middle (RFC 9112 section 8)."""
    INVALIDATED = "invalidated"
    """The target was invalidated while the response was on its way."""
    PURGED = "purged"
    """A purge that it matches came while it was on its way."""
    TAGS = "tags"
    """It has more tags, or longer ones, than it could be purged by."""
    BAD_HEADERS = "bad-headers"
    NO_TIER = "no-tier"
    """No tier takes it: it is too large for all of them, or what a tier has to tell first did not come in time."""
    OLDER = "older"
    """What is stored by now was asked for later."""
    BETTER_STORED = "better-stored"
    """It is an error, and what is stored is a good answer that may still be used, in place of an error at least."""
    NO_MEMORY = "no-memory"
    """The bodies being copied at this moment, or the writes that wait, fill what memory is set aside for them."""


class CollapseOutcome(StrEnum):
    """What became of a request that another one for the same key was ahead of."""

    ANSWERED = "answered"
    """It got the answer that the other one had fetched."""
    STALE = "stale"
    """The other one failed, and something stale was sent in place of the error."""
    TAKEOVER = "takeover"
    """The other one was gone or had failed, and this one asked the origin in its place."""
    RELEASED = "released"
    """The other's answer was not for sharing, or did not come in time: this one asked the origin by itself."""
    HIT_FOR_MISS = "hit-for-miss"
    """It did not wait: an answer for the key had lately not been for sharing."""


class RefreshCause(StrEnum):
    """Why a background refresh was begun."""

    STALE = "stale"
    """A client has got the entry stale (stale-while-revalidate)."""
    AHEAD = "ahead"
    """The entry is popular, and its lifetime is nearly over (refresh-ahead)."""


class RefreshOutcome(StrEnum):
    """How a background refresh ended."""

    STORED = "stored"
    """The origin gave a new answer."""
    NOT_MODIFIED = "not-modified"
    FOUND = "found"
    """Another process had been faster: its answer was taken from the tier that both share."""
    ELSEWHERE = "elsewhere"
    """Another pod is at it."""
    NOT_STORED = "not-stored"
    """The origin's new answer may not be stored."""
    MISMATCH = "mismatch"
    """The origin said 304 for something else than what is stored, and gave no whole answer either."""
    SATURATED = "saturated"
    """As many refreshes as are allowed are under way."""
    ERROR = "error"
    """The origin failed or was not reached; what is stored stays as it is."""


class Stage(StrEnum):
    """What is timed."""

    LOOKUP = "lookup"
    """The whole decision about a request that is looked up, from its message to the reply."""
    COLLAPSE = "collapse"
    """The wait for another request's answer."""
    WARM = "warm"
    COLD = "cold"
    STORE = "store"
    REFRESH = "refresh"


class AskedFor(StrEnum):
    """Why the filter in Envoy hands a request on, which then may say what the filter may keep or has to drop."""

    MISS = "miss"
    STALE = "stale"
    """It serves what it has stale meanwhile."""
    RENEW = "renew"
    """What it has is popular, and nearly stale."""
    UNSAFE = "unsafe"
    """The request may change what is stored."""


class TierName(StrEnum):
    """The tiers, fastest first."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


TIER_IN_ENVOY: Final = "wasm"
"""What the hot tier inside Envoy is called beside them, in `cache-status` and metrics. The sidecar has no such tier."""
