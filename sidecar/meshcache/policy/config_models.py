"""The shape of a `CacheConfig`: what operators own. Compilation to plain values is in `compile`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from meshcache.policy import values as v
from meshcache.policy.schema import CookieName, Duration, Head, Quantity, Strict, Worded, refuse


class WarmStore(Strict):
    """The shared store."""

    planned: ClassVar[frozenset[str]] = frozenset({"cluster", "tls", "authRef", "zoneAware"})
    url: Annotated[str, BeforeValidator(v.warm_url)]


class ColdStore(Strict):
    """The large and slow store."""

    url: Annotated[str, BeforeValidator(v.cold_url)] | None = None
    max_bytes: Annotated[Quantity, Field(gt=0)] | None = None


class Stores(Strict):
    """Where warm and cold entries are kept."""

    warm: WarmStore | None = None
    cold: ColdStore | None = None


class Budgets(Strict):
    """Memory for each pod."""

    planned: ClassVar[frozenset[str]] = frozenset({"memory"})
    hot: Annotated[Quantity, Field(gt=0)] | None = None
    filter: Quantity | None = None


class TrustSource(Worded):
    """`mesh`, `any`, or `{addresses: [...]}`."""

    words = ("mesh", "any")
    expected = "mesh, any or {addresses: [10.0.0.0/8]}"
    nothing: ClassVar = {"addresses": ()}
    addresses: list[Annotated[str, BeforeValidator(v.network)]] = Field(min_length=1)


class TrustedBy(Strict):
    """Who may set one header, or see all of one."""

    from_: list[TrustSource] = Field(alias="from")


class TrustSpec(Strict):
    """Whose headers count, and who sees all of `cache-status`."""

    canary_header: TrustedBy | None = None
    score_header: TrustedBy | None = None
    cache_status: TrustedBy | None = None


class TelemetrySpec(Strict):
    """What the cache tells of itself."""

    planned: ClassVar[frozenset[str]] = frozenset({"otlp", "sampling", "serverTiming"})
    cache_status: Literal["standard", "minimal", "off"] = "standard"


class NamedBy(Strict):
    """`{jwtClaim: sub}` or `{mtlsPeer: uri}`: what Envoy has verified."""

    jwt_claim: Annotated[str, BeforeValidator(v.claim)] | None = None
    mtls_peer: Literal["uri", "dns", "subject"] | None = None

    @model_validator(mode="after")
    def _one(self) -> NamedBy:
        if (self.jwt_claim is None) == (self.mtls_peer is None):
            raise ValueError("expected one of jwtClaim and mtlsPeer, for example {jwtClaim: sub}")
        return self


class SessionBy(Strict):
    """`{jwtClaim: sid}` or `{cookie: sid}`: a session is whoever holds its secret."""

    jwt_claim: Annotated[str, BeforeValidator(v.claim)] | None = None
    cookie: CookieName | None = None

    @model_validator(mode="after")
    def _one(self) -> SessionBy:
        if (self.jwt_claim is None) == (self.cookie is None):
            raise ValueError("expected one of jwtClaim and cookie, for example {cookie: sid}")
        return self


class IdentitySpec(Strict):
    """Who the caller is."""

    planned: ClassVar[frozenset[str]] = frozenset({"claims"})
    subject: NamedBy | None = None
    tenant: NamedBy | None = None
    session: SessionBy | None = None


class RevisionSpec(Strict):
    """Where the application's revision comes from."""

    from_: Literal["podLabel", "envoyCluster", "env"] = Field(alias="from")
    name: Annotated[str, BeforeValidator(v.label_name)] | None = None

    @model_validator(mode="after")
    def _named(self) -> RevisionSpec:
        if self.from_ == "envoyCluster" and self.name is not None:
            refuse("name", "has no meaning with `from: envoyCluster`; remove it")
        if self.from_ != "envoyCluster" and self.name is None:
            refuse("name", f"is required with `from: {self.from_}`")
        return self


class Admin(Strict):
    """Addresses of the sidecar's own servers."""

    planned: ClassVar[frozenset[str]] = frozenset({"socket", "tokenRef"})
    metrics_listen: Annotated[str, BeforeValidator(v.listen_address)] | None = None


class WebhookModel(Strict):
    """An address that is told of decisions."""

    url: Annotated[str, BeforeValidator(v.webhook_url)]
    timeout: Annotated[Duration, Field(gt=0, le=60)] = 5.0


class Notify(Strict):
    """Who is told of what is decided about experiments."""

    webhook: WebhookModel | None = None


class ConfigSpec(Strict):
    """`CacheConfig.spec`."""

    planned: ClassVar[frozenset[str]] = frozenset({"signing"})
    stores: Stores = Stores()
    budgets: Budgets = Budgets()
    trust: TrustSpec = TrustSpec()
    identity: IdentitySpec = IdentitySpec()
    telemetry: TelemetrySpec = TelemetrySpec()
    revision: RevisionSpec | None = None
    notify: Notify = Notify()
    admin: Admin = Admin()


class CacheConfig(Head):
    """What operators own: stores, trust, budgets."""

    kind: Literal["CacheConfig"]
    spec: ConfigSpec
