"""Leases where there is nobody to share them with."""

from __future__ import annotations

from meshcache.engine.ports import FleetLease


class NoFleet:
    """The `FleetLeases` of a pod without a store that others share: every lease is granted at once."""

    async def acquire(self, key: bytes, seconds: float) -> FleetLease | None:  # noqa: ARG002 - the port's signature
        """See `FleetLeases`."""
        return FleetLease(key, b"")

    async def release(self, lease: FleetLease, *, shun: float = 0.0, answered: bool = False) -> None:
        """See `FleetLeases`."""
