"""The shape of policies and routes, as pydantic models. Compilation to plain values is in `compile`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from meshcache.policy import values as v
from meshcache.policy.compiled import TARGETS
from meshcache.policy.config_models import CacheConfig
from meshcache.policy.experiment_models import CacheExperiment
from meshcache.policy.schema import (
    CookieName,
    Deadline,
    Duration,
    Head,
    HeaderName,
    Percent,
    Quantity,
    Ref,
    Strict,
    Worded,
    refuse,
)

# CachePolicy

_MOST_AHEAD: Final = 0.5


class Negative(Strict):
    """Lifetime of an error response."""

    status: int = Field(ge=400, le=599)
    ttl: Duration


class FreshnessSpec(Strict):
    """How long what is stored may be used."""

    planned: ClassVar[frozenset[str]] = frozenset({"ttlFactors"})
    mode: Literal["rfc9111", "override"] = "rfc9111"
    ignore: list[Literal["no-store", "private", "no-cache", "authorization"]] = Field(default_factory=list)
    type_mismatch: Literal["refuse", "store"] = "refuse"
    default_ttl: Duration | None = None
    max_ttl: Duration | None = None
    stale_while_revalidate: Duration = 0.0
    stale_if_error: Duration = 0.0
    stale_if_unreachable: Duration = 60.0
    heuristic: Percent = 0.1
    targets: list[Annotated[HeaderName, BeforeValidator(v.target)]] = Field(default_factory=lambda: list(TARGETS))
    refresh_ahead: Percent = 0.0
    negative: list[Negative] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> FreshnessSpec:
        if self.mode == "override" and self.default_ttl is None:
            refuse("defaultTtl", "is required with `mode: override`, for example 60s")
        if self.default_ttl is not None and self.max_ttl is not None and self.default_ttl > self.max_ttl:
            refuse("defaultTtl", "is longer than maxTtl")
        if self.refresh_ahead > _MOST_AHEAD:
            refuse("refreshAhead", f"is above {_MOST_AHEAD:.0%}: popular entries would be asked for twice as often")
        statuses = [entry.status for entry in self.negative]
        if len(set(statuses)) < len(statuses):
            refuse("negative", "names a status twice")
        return self


class HotTier(Strict):
    """Limits in process memory."""

    ttl: Duration = 30.0
    max_object_bytes: Quantity = 1 << 20
    deadline: Deadline = 0.005


class WarmTier(Strict):
    """Limits in the shared store."""

    ttl: Duration = 300.0
    max_object_bytes: Quantity = 8 << 20
    deadline: Deadline = 0.020


class ColdTier(Strict):
    """Limits in the large and slow store."""

    ttl: Duration = 86400.0
    max_object_bytes: Quantity = 64 << 20
    deadline: Deadline = 0.100


class TiersSpec(Strict):
    """Limits for each tier."""

    hot: HotTier = HotTier()
    warm: WarmTier = WarmTier()
    cold: ColdTier = ColdTier()


class PlacementSpec(Strict):
    """Which tier a caller's score has earned."""

    hot_at: Percent = 0.0
    warm_at: Percent = 0.0
    promotion: Literal["onHit", "never"] = "onHit"

    @model_validator(mode="after")
    def _ordered(self) -> PlacementSpec:
        if self.hot_at < self.warm_at:
            refuse("hotAt", "is below warmAt: a better score has to earn the faster tier")
        return self


class QuerySpec(Strict):
    """Which query parameters tell answers apart."""

    include: list[Annotated[str, BeforeValidator(v.glob)]] = Field(default_factory=lambda: ["*"])
    exclude: list[Annotated[str, BeforeValidator(v.glob)]] = Field(default_factory=list)
    sort: bool = False


class Partition(Worded):
    """`tenant`, `subject`, `session`, `revision` or `{header: x}`."""

    words = ("tenant", "subject", "session", "revision")
    expected = f"one of {', '.join(words)}, or {{header: x-name}}"
    nothing: ClassVar = {"header": ""}
    header: HeaderName


class KeyModel(Strict):
    """What of a request makes up the cache key."""

    planned: ClassVar[frozenset[str]] = frozenset({"bodyOptions"})
    methods: list[Annotated[str, BeforeValidator(v.key_method)]] = Field(
        default_factory=lambda: ["GET", "HEAD"], min_length=1
    )
    host: bool = True
    query: QuerySpec = QuerySpec()
    headers: list[HeaderName] = Field(default_factory=list)
    cookies: list[CookieName] = Field(default_factory=list)
    strip: list[Annotated[str, BeforeValidator(v.stripped_header)]] = Field(default_factory=list)
    body: Annotated[Literal["none"], BeforeValidator(v.later("sha256", "json"))] = "none"
    partition: list[Partition] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> KeyModel:
        keyed = {*self.headers, *(part.header for part in self.partition)} | ({"cookie"} if self.cookies else set())
        for name in self.strip:
            if name in keyed:
                refuse("strip", f"{name} is part of the key, and so cannot be kept from the origin")
        return self


class Refresh(Strict):
    """How stale entries are renewed in the background."""

    via: Annotated[str, BeforeValidator(v.via)] = "envoy"
    max_concurrent: Annotated[int, Field(ge=1, le=1024)] = 8


class CollapseSpec(Strict):
    """Whether requests for one key wait for each other."""

    enabled: bool = True
    max_wait: Annotated[Duration, AfterValidator(v.max_wait)] = 10.0


class CostSpec(Strict):
    """What the origin costs."""

    per_origin_request: Annotated[float, BeforeValidator(v.amount)]
    currency: Annotated[str, BeforeValidator(v.currency)]


class PolicySpec(Strict):
    """`CachePolicy.spec`."""

    planned: ClassVar[frozenset[str]] = frozenset({"evictionOptions", "admission", "semantic", "confidence"})
    extends: Ref | None = None
    eviction: Annotated[
        Literal["lru", "ttl"], BeforeValidator(v.later("lru-k", "sieve", "s3-fifo", "w-tinylfu", "gdsf"))
    ] = "lru"
    freshness: FreshnessSpec = FreshnessSpec()
    tiers: TiersSpec = TiersSpec()
    placement: PlacementSpec = PlacementSpec()
    key: KeyModel = KeyModel()
    collapse: CollapseSpec = CollapseSpec()
    refresh: Refresh = Refresh()
    cost: CostSpec | None = None

    @model_validator(mode="after")
    def _consistent(self) -> PolicySpec:
        if self.freshness.ignore and all(part.word != "subject" for part in self.key.partition):
            refuse(
                ("freshness", "ignore"),
                "needs the key to hold the person, or one caller would get what another may see",
                "add key: {partition: [subject]}",
            )
        return self


# CacheRoute


def _one_of_exact_and_regex(exact: str | None, regex: str | None, example: str) -> None:
    if (exact is None) == (regex is None):
        raise ValueError(f"expected one of exact and regex, for example {example}")


class PathMatch(Strict):
    """`{exact: /a}`, `{prefix: /a}` or `{regex: /a/[0-9]+}`."""

    hints: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("type", "value"), "write {exact: /a}, {prefix: /a} or {regex: /a/.*}"
    )
    exact: Annotated[str, BeforeValidator(v.url_path)] | None = None
    prefix: Annotated[str, BeforeValidator(v.url_path)] | None = None
    regex: Annotated[str, BeforeValidator(v.path_pattern)] | None = None

    @model_validator(mode="after")
    def _one(self) -> PathMatch:
        if sum(value is not None for value in (self.exact, self.prefix, self.regex)) != 1:
            raise ValueError("expected one of exact, prefix and regex, for example {prefix: /v1/images}")
        return self


class HeaderMatch(Strict):
    """A header that must have this value, or fit this expression."""

    hints: ClassVar[Mapping[str, str]] = dict.fromkeys(("type", "value"), "write exact or regex")
    name: HeaderName
    exact: str | None = None
    regex: Annotated[str, BeforeValidator(v.pattern)] | None = None

    @model_validator(mode="after")
    def _one(self) -> HeaderMatch:
        _one_of_exact_and_regex(self.exact, self.regex, "{name: accept, exact: application/json}")
        return self


class QueryMatch(Strict):
    """A query parameter whose first value must be this one, or fit this expression."""

    hints: ClassVar[Mapping[str, str]] = HeaderMatch.hints
    name: Annotated[str, BeforeValidator(v.parameter_name)]
    exact: Annotated[str, BeforeValidator(v.parameter_value)] | None = None
    regex: Annotated[str, BeforeValidator(v.pattern)] | None = None

    @model_validator(mode="after")
    def _one(self) -> QueryMatch:
        _one_of_exact_and_regex(self.exact, self.regex, "{name: format, exact: json}")
        return self


class MatchModel(Strict):
    """One way to belong to the route: all that is given must fit."""

    hints: ClassVar[Mapping[str, str]] = {
        "queryParams": "it is called query here",
        "queryParameters": "it is called query here",
        "method": "write methods: [GET]",
        "host": "write hosts: [api.example.com]",
        "hostnames": "it is called hosts here",
    }
    hosts: list[Annotated[str, BeforeValidator(v.host_pattern)]] = Field(default_factory=list)
    path: PathMatch | None = None
    methods: list[Annotated[str, BeforeValidator(v.match_method)]] = Field(default_factory=list)
    headers: list[HeaderMatch] = Field(default_factory=list, max_length=16)
    query: list[QueryMatch] = Field(default_factory=list, max_length=16)

    @model_validator(mode="after")
    def _distinct(self) -> MatchModel:
        for field, names in (
            ("headers", [one.name for one in self.headers]),
            ("query", [one.name for one in self.query]),
        ):
            if len(set(names)) < len(names):
                refuse(field, f"names a {'header' if field == 'headers' else 'parameter'} twice")
        return self


class RouteSpec(Strict):
    """`CacheRoute.spec`."""

    planned: ClassVar[frozenset[str]] = frozenset({"targetRefs", "partitions", "prewarm", "originBudget"})
    match: list[MatchModel] = Field(min_length=1)
    policy_ref: Ref | None = None


# Documents


class CachePolicy(Head):
    """How to cache."""

    kind: Literal["CachePolicy"]
    spec: PolicySpec


class CacheRoute(Head):
    """Where to cache."""

    kind: Literal["CacheRoute"]
    spec: RouteSpec


Manifest = CacheConfig | CachePolicy | CacheRoute | CacheExperiment
KINDS: dict[str, type[CacheConfig] | type[CachePolicy] | type[CacheRoute] | type[CacheExperiment]] = {
    "CacheConfig": CacheConfig,
    "CachePolicy": CachePolicy,
    "CacheRoute": CacheRoute,
    "CacheExperiment": CacheExperiment,
}
