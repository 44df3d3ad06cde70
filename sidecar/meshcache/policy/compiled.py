"""A compiled policy set: what the request path works by. Plain frozen values, no I/O, no pydantic.

All durations are seconds, all sizes bytes, all scores fractions between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from meshcache.policy.identity import IdentityRules
from meshcache.policy.trust import TrustRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshcache.experiment.metric import Metric

Eviction = Literal["ttl", "lru"]
CacheStatus = Literal["full", "standard", "minimal", "off"]
"""How much of `cache-status` a client sees."""

TARGETS = ("meshcache-cache-control", "cdn-cache-control", "surrogate-control")
"""The target list of a policy that names none (RFC 9213 section 2.2)."""


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
    refresh_ahead: float = 0.0
    """Last share of its lifetime in which a popular entry is renewed; 0: none."""
    stale_if_unreachable: float = 60.0
    heuristic: float = 0.1
    """The part of the time that a response had gone unchanged for which it is fresh, where nobody sets a lifetime; 0
    for none."""
    targets: tuple[str, ...] = TARGETS
    """Fields that go before `cache-control` and `expires`, in lower case, the first that is there ruling alone."""
    ignore: frozenset[str] = frozenset()
    """What the origin says and does not bind: any of `no_store`, `private`, `no_cache`, `authorization`."""
    person_keyed: bool = False
    """Whether the key holds the person or his session."""
    cookies_keyed: bool = False
    """Whether the key holds the cookies that matter, or the origin never sees any."""
    refuse_disguised: bool = True
    """Whether a page under the name of a static file is not stored."""


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

    def deadline(self) -> float:
        """How long a look-up in all tiers, one after the other, may take, in seconds."""
        return self.hot.deadline + self.warm.deadline + self.cold.deadline

    def largest(self) -> int:
        """The size of the largest object that any tier takes, in bytes."""
        return max(self.hot.max_object_bytes, self.warm.max_object_bytes, self.cold.max_object_bytes)


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
    strip: frozenset[str] = frozenset()
    """Request headers that are kept from the origin, and so cannot tell answers apart."""
    partition_headers: tuple[str, ...] = ()
    partition_tenant: bool = False
    partition_subject: bool = False
    partition_session: bool = False
    fingerprint: bytes = b""
    """Digest of the fields above: two different key specifications never share entries."""

    @property
    def partitioned(self) -> bool:
        """Whether the key holds who the caller is: then only he himself can ask the origin for his answer."""
        return self.partition_tenant or self.partition_subject or self.partition_session

    def __hash__(self) -> int:
        # It is hashed for every request; the digest stands for all fields, equality still compares them.
        return hash(self.fingerprint)


@dataclass(frozen=True, slots=True)
class Policy:
    """How to cache: one compiled `CachePolicy`."""

    name: str
    eviction: Eviction
    freshness: Freshness
    tiers: Tiers
    placement: Placement
    key: KeySpec
    collapse_wait: float = 10.0
    """Seconds for which a request waits for another's answer at most; 0: it does not."""
    refresh_max_concurrent: int = 8
    refresh_via: str = ""
    """The Envoy cluster that refreshes go to; empty: where the refresh address leads."""
    cost: float = 0.0
    """Of one request to the origin."""
    currency: str = ""
    """In which `cost` is; empty where nothing is said of it."""
    digest: str = field(default="", compare=False)
    """Of what the spec says, whatever the policy's name."""


class Condition(NamedTuple):
    """What a header or a query parameter has to be."""

    name: str
    """Of a header: in lower case. Of a parameter: as it is sent, nothing decoded."""
    value: str
    """The value itself, as it is sent (one character for each byte), or an expression that all of it has to fit."""
    regex: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """One way in which a request can belong to a route: all that is given must fit."""

    hosts: tuple[str, ...] = ()
    """Lower case, `*.` in front for every host below; empty for any host."""
    exact: str | None = None
    """The whole path without its query."""
    prefix: str = ""
    """Whole path segments, without the slash at the end; empty for every path."""
    regex: str | None = None
    """An expression of RE2 that the whole path without its query has to fit."""
    methods: frozenset[str] = frozenset()
    """Empty for any method."""
    headers: tuple[Condition, ...] = ()
    query: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Which requests are meant: one compiled `CacheRoute`."""

    name: str
    matches: tuple[Match, ...]
    policy: Policy | None
    """None for a route that is not cached (an experiment on it may still name policies)."""


@dataclass(frozen=True, slots=True)
class UnitSource:
    """Where a request says to which unit (user, session) it belongs.

    `subject` is the caller as Envoy has verified him, `cacheKey` what is asked for: keys are assigned, not callers.
    """

    kind: Literal["header", "cookie", "subject", "cacheKey"]
    name: str = ""
    """Of the header or the cookie."""
    mark: bytes = field(init=False)
    """Stands before the value in what is hashed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mark", f"{self.kind}:{self.name}\0".encode())


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the policies that an experiment compares."""

    name: str
    policy: Policy
    weight: int
    force: tuple[tuple[str, str], ...] = ()
    """Header names and values, any of which sends a trusted caller's request to this arm."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Which arms are held against each other, by their places."""

    candidate: int
    against: int


@dataclass(frozen=True, slots=True)
class Primary:
    """What makes the candidate the better arm."""

    metric: Metric
    increase: bool
    """Whether more is better."""


@dataclass(frozen=True, slots=True)
class Guardrail:
    """What the candidate must not do."""

    metric: Metric
    increase: bool
    """Whether an increase is the harm; else a decrease."""
    relative: bool
    allowed: float
    """A share of what the other arm has, or a difference: a share, seconds, bytes or money, as the metric has it."""
    hold: float
    """Seconds for which it must be seen without a break."""
    min_units: int
    """In both arms."""


@dataclass(frozen=True, slots=True)
class RampStep:
    """A stage of an experiment."""

    share: float
    """Of all units, for the candidate; as much again for its baseline."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """One compiled `CacheExperiment`."""

    name: str
    route: str
    units: tuple[UnitSource, ...]
    """In order of preference: the first that a request carries is its unit."""
    arms: tuple[Arm, ...]
    """The first arm is control: it gets the requests that carry no unit, and everybody after a rollback."""
    uid: str = ""
    """Of the object in the cluster; the name stands in for it where there is none."""
    spec_hash: str = ""
    """Hex digest of what the file says and of its arms' policies: another text is another experiment."""
    compare: Compare | None = None
    """None: the traffic is divided, and nothing is judged."""
    primary: Primary | None = None
    guardrails: tuple[Guardrail, ...] = ()
    ramp: tuple[RampStep, ...] = ()
    warmup: float = 300.0
    """Seconds at the beginning of each stage that no verdict takes into account."""
    on_breach: Literal["rollback", "pause"] = "rollback"
    on_win: Literal["hold", "promote"] = "hold"
    confidence: float = 0.95

    @property
    def by_key(self) -> bool:
        """Whether keys are assigned, not callers."""
        return self.units[0].kind == "cacheKey"


@dataclass(frozen=True, slots=True)
class RevisionSource:
    """Where the application's revision comes from."""

    kind: Literal["fixed", "envoyCluster"] = "fixed"
    value: str = ""
    """The revision, where it is fixed for the life of the process; for `envoyCluster`, what stands in when Envoy does
    not name the cluster."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose headers count."""

    canary: TrustRule = field(default_factory=TrustRule)
    """For the headers under `force` of an experiment's arms, `x-canary` as a rule."""
    score: TrustRule = field(default_factory=TrustRule)
    """For `x-user-score`."""
    cache_status: TrustRule = field(default_factory=TrustRule)
    """For whom `cache-status` holds everything."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that is told of decisions about experiments."""

    url: str = field(repr=False)
    """May hold a secret."""
    timeout: float
    """Seconds for one try."""


@dataclass(frozen=True, slots=True)
class Config:
    """What operators own: one compiled `CacheConfig`. None means that the command line or a default decides."""

    name: str = ""
    warm_url: str | None = None
    cold_url: str | None = None
    cold_max_bytes: int | None = None
    hot_bytes: int | None = None
    """Memory for hot entries in this pod, to be divided among its workers."""
    filter_bytes: int | None = None
    """Memory for hot entries in each worker of Envoy; 0 for none."""
    trust: Trust = field(default_factory=Trust)
    cache_status: CacheStatus = "standard"
    """What of `cache-status` those see whom `trust.cache_status` does not name."""
    identity: IdentityRules = field(default_factory=IdentityRules)
    revision: RevisionSource = field(default_factory=RevisionSource)
    refresh_clusters: frozenset[str] = frozenset()
    """The Envoy clusters that refreshes may go to, as named at the start of the process."""
    metrics_listen: str | None = None
    """`HOST:PORT`."""
    webhook: Webhook | None = None
