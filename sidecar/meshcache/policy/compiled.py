"""A compiled policy set: what the request path works by. Plain frozen values, no I/O, no pydantic.

All durations are seconds, all sizes bytes, all scores fractions between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Eviction = Literal["ttl", "lru"]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long what is stored may be used; the fields are those of `CachePolicy.spec.freshness`."""

    mode: Literal["rfc9111", "override"] = "rfc9111"
    default_ttl: float | None = None
    max_ttl: float | None = None
    stale_while_revalidate: float = 0.0
    stale_if_error: float = 0.0
    negative: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Lifetime by status code, for error responses without explicit freshness."""


@dataclass(frozen=True, slots=True)
class TierLimits:
    """What one tier may hold for a policy, and how long a look-up in it may take."""

    ttl: float
    """Longest residence; nothing is served past freshness plus its stale window in any case."""
    max_object_bytes: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Tiers:
    """The limits for each tier."""

    hot: TierLimits
    warm: TierLimits
    cold: TierLimits


@dataclass(frozen=True, slots=True)
class Placement:
    """Which tier a caller's score has earned."""

    hot_at: float = 0.0
    warm_at: float = 0.0
    promote_on_hit: bool = True


@dataclass(frozen=True, slots=True)
class KeySpec:
    """What of a request makes up the cache key."""

    methods: frozenset[str] = frozenset({"GET", "HEAD"})
    host: bool = True
    query_include: tuple[str, ...] = ("*",)
    query_exclude: tuple[str, ...] = ()
    query_sort: bool = False
    headers: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()
    partition_headers: tuple[str, ...] = ()
    fingerprint: bytes = b""
    """Digest of the fields above: two different key specifications never share entries."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How to cache: one compiled `CachePolicy`."""

    name: str
    eviction: Eviction
    freshness: Freshness
    tiers: Tiers
    placement: Placement
    key: KeySpec
    refresh_max_concurrent: int = 8
