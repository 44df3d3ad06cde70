"""Which tiers a caller's score has earned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.decisions import TierName
from meshcache.engine.placement import earned_tiers, promoted_tiers, with_tiers_of
from meshcache.policy.compiled import Placement

HOT, WARM, COLD = TierName
BY_SCORE = Placement(hot_at=0.7, warm_at=0.3)


@pytest.mark.parametrize(
    ("score", "tiers"),
    [
        (None, (HOT, WARM)),
        (1.0, (HOT, WARM)),
        (0.7, (HOT, WARM)),
        (0.69, (WARM,)),
        (0.3, (WARM,)),
        (0.29, (COLD,)),
        (0.0, (COLD,)),
    ],
)
def test_tiers_by_score(score: float | None, tiers: tuple[TierName, ...]) -> None:
    assert earned_tiers(BY_SCORE, score) == tiers


@pytest.mark.parametrize(
    ("score", "found", "tiers"),
    [
        (0.9, COLD, (HOT, WARM)),
        (0.9, WARM, (HOT,)),
        (0.9, HOT, ()),
        (0.5, COLD, (WARM,)),
        (0.5, WARM, ()),
        (0.5, HOT, ()),
        (0.1, COLD, ()),
        (0.1, HOT, ()),
    ],
)
def test_an_entry_moves_up_to_what_its_reader_has_earned(
    score: float, found: TierName, tiers: tuple[TierName, ...]
) -> None:
    assert promoted_tiers(BY_SCORE, score, found) == tiers
    assert promoted_tiers(Placement(0.7, 0.3, promote_on_hit=False), score, found) == ()


scores = st.one_of(st.none(), st.floats(0, 1))


@given(st.floats(0, 1), st.floats(0, 1), scores, st.sampled_from(TierName))
def test_promotion_never_goes_down_nor_stays(one: float, other: float, score: float | None, found: TierName) -> None:
    placement = Placement(hot_at=max(one, other), warm_at=min(one, other))
    order = list(TierName)
    assert all(order.index(name) < order.index(found) for name in promoted_tiers(placement, score, found))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_better_score_never_earns_a_slower_tier(hot_at: float, warm_at: float, one: float, other: float) -> None:
    placement = Placement(hot_at=max(hot_at, warm_at), warm_at=min(hot_at, warm_at))
    order = list(TierName)
    better, worse = (order.index(earned_tiers(placement, score)[0]) for score in (max(one, other), min(one, other)))
    assert better <= worse


def test_what_replaces_an_entry_goes_where_it_lay_too() -> None:
    assert with_tiers_of((COLD,), HOT) == (HOT, WARM, COLD)
    assert with_tiers_of((COLD,), WARM) == (WARM, COLD)
    assert with_tiers_of((HOT, WARM), COLD) == (HOT, WARM, COLD)
    assert with_tiers_of((WARM,), WARM) == (WARM,)
