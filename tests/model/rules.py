"""RFC 9111 as a shared cache has to obey it, as short as it can be said, and without a parser.

Written from the RFCs and from what the policies promise, not from the engine: messages are structures here, which
`wording.py` turns into header fields for the engine. All times are seconds; `now` is Unix time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HEURISTICALLY_CACHEABLE = {200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501}
"""RFC 9110 section 15.1, but for 206."""
NOT_UNDERSTOOD = {299, 499, 599}
"""The status codes of the histories whose meaning no RFC tells."""
ORIGIN_ERRORS = {500, 502, 503, 504}
"""RFC 5861 section 4."""


@dataclass(frozen=True)
class Said:
    """`cache-control` of a response."""

    max_age: int | None = None
    s_maxage: int | None = None
    swr: int | None = None
    sie: int | None = None
    no_store: bool = False
    no_cache: bool = False
    private: bool = False
    public: bool = False
    must_revalidate: bool = False
    proxy_revalidate: bool = False
    must_understand: bool = False
    immutable: bool = False
    hidden: tuple[str, ...] = ()
    """The fields of a qualified `no-cache`."""

    def forbids_stale(self) -> bool:
        """Section 4.2.4, whatever anybody else allows."""
        return self.no_cache or self.must_revalidate or self.proxy_revalidate


@dataclass(frozen=True)
class Wanted:
    """`cache-control` of a request."""

    no_cache: bool = False
    no_store: bool = False
    only_if_cached: bool = False
    max_age: int | None = None
    min_fresh: int | None = None
    max_stale: float | None = None
    sie: int | None = None


@dataclass(frozen=True)
class Asked:
    """A request: what of it matters to a cache."""

    method: str
    path: str
    fields: Mapping[str, str]
    wanted: Wanted = Wanted()
    span: tuple[int | None, int | None] | None = None
    """The first and the last byte of one range; without a first, so many from the end."""

    @property
    def tenant(self) -> str | None:
        """The border that the policies of the histories draw: by a header."""
        return self.fields.get("x-tenant")

    @property
    def authorized(self) -> bool:
        return "authorization" in self.fields


@dataclass(frozen=True)
class Policy:
    """What the operator adds to the RFC."""

    default: float | None = None
    longest: float = math.inf
    swr: float = 0.0
    sie: float = 0.0
    unreachable: float = 60.0
    ahead: int = 0
    """Percent of the lifetime that is left when a popular entry is renewed: no answer may tell."""
    override: bool = False
    negative: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """A response as a cache may hold it: as it came, or as a later one has brought its fields up to date."""

    status: int
    said: Said
    sent: float
    """When the request went out."""
    came: float
    """When the head of the response came in."""
    date: float
    """Its `date`; `came` when it had none."""
    age: float = 0.0
    """Its `age`."""
    expires: float | None = None
    """Its `expires`; minus infinity when that is no date."""
    modified: float | None = None
    """Its `last-modified`."""


def storable(asked: Asked, kept: Kept, policy: Policy) -> bool:
    """Section 3: whether it may be stored at all by a shared cache."""
    said = kept.said
    if asked.method != "GET" or asked.wanted.no_store or said.private:
        return False
    if said.must_understand:
        if kept.status in NOT_UNDERSTOOD:
            return False
    elif said.no_store:
        return False
    if asked.authorized and not shareable(said):
        return False
    return (
        said.public
        or said.max_age is not None
        or said.s_maxage is not None
        or kept.expires is not None
        or kept.status in HEURISTICALLY_CACHEABLE
        or kept.status in policy.negative
    )


def shareable(said: Said) -> bool:
    """Section 3.5: whether an answer to an authorized request may serve others. We ask the same of the reverse."""
    return said.public or said.must_revalidate or said.s_maxage is not None


def explicit_lifetime(kept: Kept) -> float | None:
    """Section 4.2.1."""
    if kept.said.s_maxage is not None:
        return kept.said.s_maxage
    if kept.said.max_age is not None:
        return kept.said.max_age
    if kept.expires is not None:
        return max(0.0, kept.expires - kept.date)
    return None


def assigned_lifetime(kept: Kept, policy: Policy) -> float | None:
    """What the policy gives to a response of this status."""
    if kept.status in policy.negative:
        return policy.negative[kept.status]
    may_assume = kept.status in HEURISTICALLY_CACHEABLE or kept.said.public
    return policy.default if may_assume and kept.status < 400 else None


def personal(asked: Asked, said: Said, *, sets_cookie: bool) -> bool:
    """Whether it may be for one visitor only: then nobody but the origin gives it a lifetime (a promise of ours)."""
    return (sets_cookie or asked.authorized or "cookie" in asked.fields) and not (
        said.public or said.s_maxage is not None
    )


def lifetime(kept: Kept, policy: Policy, *, personal: bool) -> float | None:
    """How long it is fresh for sure, or None when neither origin nor policy say so."""
    explicit, assigned = explicit_lifetime(kept), None if personal else assigned_lifetime(kept, policy)
    first, second = (assigned, explicit) if policy.override else (explicit, assigned)
    found = second if first is None else first
    return None if found is None else min(found, policy.longest)


def longest_lifetime(kept: Kept, policy: Policy, *, personal: bool) -> float:
    """How long it may be taken to be fresh at most: section 4.2.2 lets a cache assume where nobody says anything."""
    found = lifetime(kept, policy, personal=personal)
    if found is not None or personal:
        return found or 0.0
    may_assume = kept.status in HEURISTICALLY_CACHEABLE or kept.said.public
    unchanged = 0.0 if kept.modified is None else min(kept.date, kept.came) - kept.modified
    assumed = max(0.0, unchanged) / 10 if may_assume else 0.0
    return min(assumed, policy.longest)


def slice_of(span: tuple[int | None, int | None], length: int) -> tuple[int, int]:
    """RFC 9110 section 14.1.2: where the range begins and ends in so many bytes; empty when it lies outside."""
    first, last = span
    if first is None:
        return max(0, length - (last or 0)), length
    return first, length if last is None else min(last + 1, length)


def until_purged(kept: Kept, fresh_for: float, purged_at: float | None) -> float:
    """The lifetime of what a soft purge has made stale: it ends there, if it had not ended before."""
    return fresh_for if purged_at is None else min(fresh_for, age(kept, purged_at))


def age(kept: Kept, now: float) -> float:
    """Section 4.2.3."""
    apparent = max(0.0, kept.came - kept.date)
    corrected = kept.age + (kept.came - kept.sent)
    return max(apparent, corrected) + now - kept.came


def reusable(kept: Kept, asked: Asked, policy: Policy, now: float, *, fresh_for: float) -> bool:
    """Section 4: whether it may answer `asked` without the origin's consent. `fresh_for` is its lifetime."""
    said, wanted, old = kept.said, asked.wanted, age(kept, now)
    if said.no_cache or wanted.no_cache or (asked.authorized and not shareable(said)):
        return False
    # A reload brings nothing new of what is immutable (RFC 8246 section 2).
    if wanted.max_age is not None and old > wanted.max_age and not (said.immutable and old < fresh_for):
        return False
    if wanted.min_fresh is not None and fresh_for - old < wanted.min_fresh:
        return False
    past = old - fresh_for
    if past < 0:
        return True
    if said.forbids_stale():
        return False
    if wanted.max_stale is not None and past > wanted.max_stale:
        return False
    if wanted.max_stale is not None and said.s_maxage is None:
        return True
    # A client that sets `max-age` takes nothing stale without saying so (section 5.2.1.1).
    window = stale_window(said, said.swr, policy.swr)
    return (wanted.max_age is None or wanted.max_stale is not None) and window > 0 and past <= window


def stands_in(kept: Kept, asked: Asked, policy: Policy, now: float, *, fresh_for: float, disconnected: bool) -> bool:
    """RFC 5861 section 4: whether it may be given instead of an error of the origin.

    Who is disconnected from the origin needs nobody's leave, only that nobody forbids it (section 4.2.4).
    """
    said = kept.said
    if said.forbids_stale() or (asked.authorized and not shareable(said)):
        return False
    window = stale_window(said, said.sie, policy.sie)
    if asked.wanted.sie is not None and said.s_maxage is None:
        window = max(window, asked.wanted.sie)
    if disconnected and said.s_maxage is None and said.sie is None and not asked.wanted.no_cache:
        window = max(window, policy.unreachable)
    return window > 0 and age(kept, now) - fresh_for <= window


def stale_window(said: Said, own: float | None, policy: float) -> float:
    """For how long it may be served stale; the origin's word goes before the operator's.

    `s-maxage` alone forbids it (section 5.2.2.10), yet not where the origin itself gives a window beside it.
    """
    if own is not None:
        return own
    return 0.0 if said.s_maxage is not None else policy
