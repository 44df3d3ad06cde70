"""Which tiers take a record, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import TierName
from meshcache.engine.records import StoredResponse

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from typing import TypeGuard

    from meshcache.engine.records import Entry, Record
    from meshcache.policy.compiled import TierLimits, Tiers

_ORDER = tuple(TierName)


def in_chunks(record: Record | None) -> TypeGuard[StoredResponse]:
    """Whether it is a response whose body is stored apart from it."""
    return isinstance(record, StoredResponse) and bool(record.chunks)


def chosen_tiers(
    there: Container[TierName], tiers: Sequence[TierName], limits: Tiers, size: int, *, chunked: bool
) -> list[TierName]:
    """Those of `tiers` that take a record of `size` bytes, or else the next lower one that does.

    `there` are the lower tiers that there are.
    """
    chosen = fitting_tiers(there, tiers, limits, size, chunked=chunked)
    if not chosen and tiers:
        lowest = max(_ORDER.index(name) for name in tiers)
        chosen = fitting_tiers(there, _ORDER[lowest + 1 :], limits, size, chunked=chunked)[:1]
    return chosen


def fitting_tiers(
    there: Container[TierName], tiers: Iterable[TierName], limits: Tiers, size: int, *, chunked: bool
) -> list[TierName]:
    """Those of `tiers` that take a record of `size` bytes. Memory takes none with its body in chunks."""
    return [
        name
        for name in tiers
        if (name in there or (name is TierName.HOT and not chunked))
        and size <= limits_of(limits, name).max_object_bytes
    ]


def residence(entry: Entry, name: TierName) -> float:
    """For how many seconds `entry` stays in the tier `name`."""
    return min(entry.expires_in, limits_of(entry.limits, name).ttl)


def limits_of(limits: Tiers, name: TierName) -> TierLimits:
    """The limits for one tier."""
    match name:
        case TierName.HOT:
            return limits.hot
        case TierName.WARM:
            return limits.warm
        case TierName.COLD:
            return limits.cold
