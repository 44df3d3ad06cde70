"""What `GET /status` on the admin socket and `meshcache status --json` answer. Times are Unix seconds."""

from __future__ import annotations

import msgspec

from meshcache.experiment.overlay import Adoption, Overlay


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """A policy set that was not taken."""

    at: float
    errors: tuple[str, ...]
    """One `file:line:column: field: message` each, at most `MAX_ERRORS` of them."""


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """In the manner of Kubernetes: what holds, since when, and why."""

    type: str
    status: bool
    reason: str
    message: str
    since: float


class PolicyStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The set in force."""

    generation: int
    digest: str
    installed_at: float
    source: str
    """The folder that is watched."""
    from_last_good: bool
    """True while the folder has not held a valid set since the start, and the one kept from before serves."""
    policies: tuple[str, ...]
    routes: tuple[str, ...]
    experiments: tuple[str, ...]
    lookup_budget: float
    """Seconds that all look-ups of one request may take at most."""
    refusal: Refusal | None
    """Why the folder as it is now is not in force; None when it is."""


class ExperimentStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One experiment as it is in force."""

    name: str
    route: str
    spec_hash: str
    """Of its file's text, see `Experiment.spec_hash`."""
    arms: tuple[str, ...]
    weights: tuple[int, ...]
    """The arms' shares in force, in any measure."""
    overlay: Overlay | None
    """What has been decided and binds; None when nothing has been, and the file's own weights hold."""


class WorkerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One worker."""

    index: int
    pid: int | None
    """None between an end and the next start."""
    ready: bool
    generation: int
    """The policy set it works by; 0 before its first."""
    restarts: int
    socket: str
    started_at: float


class FilterStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The filter in one worker of Envoy."""

    name: str
    version: str
    """Of the module."""
    living: bool
    """Whether it may answer by itself: its lease has not ended."""
    plan: str
    """Id of the plan it works by; empty for none."""
    generation: int
    """The policy set that it goes by: its plan is of it, and what it kept by older ones is dropped; 0 for none."""
    silent: float
    """Seconds since it has asked."""
    entries: int
    bytes: int
    keeps: bool = True
    """Whether `budgets.filter` leaves it room for answers, by the policies that filters are told of."""


class TierStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One tier, over all workers."""

    name: str
    store: str
    """Where it keeps its entries; passwords are masked."""
    breaker_open: bool
    """True when at least one worker keeps requests away from it."""
    errors: float
    """Operations that failed since the start."""


class PurgeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How this pod stands with purges."""

    pod: str
    """Its name among the pods that share a store."""
    number: int
    """Of the newest rule in its log."""
    rules: int
    """That are kept."""
    owed: int
    """Rules that the other pods have not heard of yet, because the store that they share is away."""
    following: bool
    """Whether the rules of other pods come in; true where none share a store."""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The whole sidecar."""

    version: str
    pid: int
    started_at: float
    ready: bool
    draining: bool
    metrics_address: str
    """`host:port` of `/metrics`, `/healthz` and `/readyz`; empty when there is none."""
    policies: PolicyStatus
    workers: tuple[WorkerStatus, ...]
    tiers: tuple[TierStatus, ...]
    conditions: tuple[Condition, ...]
    purges: PurgeStatus
    experiments: tuple[ExperimentStatus, ...] = ()
    adoptions: tuple[Adoption, ...] = ()
    """Where routes keep their entries since an arm was promoted on them."""
    filters: tuple[FilterStatus, ...] = ()
    """The filters in Envoy's workers that have asked lately."""

    @property
    def well(self) -> bool:
        """Whether all is as it should be."""
        return self.ready and all(condition.status for condition in self.conditions)
