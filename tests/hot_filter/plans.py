"""The plans of worlds: small budgets, so that what is stored has to give way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.wasm.plan import PlanSettings, encode, plan_id

if TYPE_CHECKING:
    from meshcache.policy.snapshot import Snapshot

SECRET = bytes(range(32))
LEASE = 10.0
BUDGET = 12 << 20
"""Of a VM with all that it has."""
LARGEST = 128 << 10


def plan_of(snapshot: Snapshot) -> tuple[bytes, bytes]:
    """Id and bytes of the plan for these policies."""
    plan = encode(snapshot, PlanSettings(SECRET, LEASE, BUDGET, LARGEST))
    return bytes.fromhex(plan_id(plan)), plan
