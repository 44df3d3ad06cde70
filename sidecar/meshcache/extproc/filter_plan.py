"""The plan for filters, as this installation wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshcache.engine.in_envoy import LARGEST
from meshcache.wasm.plan import PlanSettings, encode, plan_id

if TYPE_CHECKING:
    from meshcache.policy.snapshot import Snapshot

DEFAULT_BYTES: Final = 32 << 20
"""Memory for hot entries in each worker of Envoy, where the CacheConfig says nothing."""
MOST_BYTES: Final = 1 << 32
"""What WebAssembly can have at most, whatever the CacheConfig says."""


def compiled_plan(snapshot: Snapshot, secret: bytes, lease: float) -> tuple[str, bytes]:
    """The plan for these policies and its id; `lease` in seconds."""
    given = snapshot.config.filter_bytes
    budget = DEFAULT_BYTES if given is None else min(given, MOST_BYTES)
    plan = encode(snapshot, PlanSettings(secret, lease, budget, min(LARGEST, budget)))
    return plan_id(plan), plan
