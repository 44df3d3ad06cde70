"""Which share of the units changes its arm when weights change."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def moved_share(old: Mapping[str, float], new: Mapping[str, float]) -> float:
    """The share of units, 0 to 1, that `Assigner` puts into another arm; the weights are by the arms' names.

    Arm i has time E_i / w_i for a unit, the E_i being independent and exponential, and the least time wins. A unit is
    in arm i before and after when E_j > E_i * max(w_j / w_i, w'_j / w'_i) for all other j, which has the probability
    1 / (1 + the sum of those factors). What is in no arm twice has moved.
    """
    stays = 0.0
    for arm in old:
        if old[arm] > 0 and new.get(arm, 0) > 0:
            others = (other for other in {*old, *new} if other != arm)
            stays += 1 / (1 + sum(max(old.get(j, 0) / old[arm], new.get(j, 0) / new[arm]) for j in others))
    return max(0.0, 1.0 - stays)
