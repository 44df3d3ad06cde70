"""Which tiers a caller's answers are written to, by the score that Envoy's trusted side has given him."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import TierName

if TYPE_CHECKING:
    from meshcache.policy.compiled import Placement

_HOT = (TierName.HOT, TierName.WARM)
_WARM = (TierName.WARM,)
_COLD = (TierName.COLD,)
_RANK = {name: rank for rank, name in enumerate(TierName)}


def earned_tiers(placement: Placement, score: float | None) -> tuple[TierName, ...]:
    """The tiers for a caller with `score` (0 to 1). A caller of whom nothing is known is treated as the best."""
    if score is None or score >= placement.hot_at:
        return _HOT
    return _WARM if score >= placement.warm_at else _COLD


def promoted_tiers(placement: Placement, score: float | None, found: TierName) -> tuple[TierName, ...]:
    """The tiers above `found` to which an entry moves for this reader; never down, and none without promotion."""
    if not placement.promote_on_hit:
        return ()
    return tuple(name for name in earned_tiers(placement, score) if _RANK[name] < _RANK[found])


def with_tiers_of(tiers: tuple[TierName, ...], held: TierName) -> tuple[TierName, ...]:
    """`tiers` and those in which an entry found in `held` lies as a rule: memory is backed by warm."""
    wanted = {*tiers, held}
    if held is TierName.HOT:
        wanted.add(TierName.WARM)
    return tuple(name for name in TierName if name in wanted)
