"""Weights of the arms in a stage of a ramp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.policy.compiled import Experiment

WHOLE: Final = 1_000_000
"""The sum of the weights of a stage: they are millionths of all units."""


def stage_weights(written: Sequence[int], candidate: int, against: int, share: float) -> tuple[int, ...]:
    """The arms' weights, in millionths of all units, while candidate and baseline have the share `share` each.

    `written` are the weights as the file has them. Arms beside the two that are compared keep their share as long as
    there is room; what is left is control's, the first arm's. So a step to a larger share moves control's units alone.
    """
    each = round(share * WHOLE)
    total = sum(written)
    weights = [
        0 if index in (0, candidate, against) else weight * WHOLE // total for index, weight in enumerate(written)
    ]
    room = WHOLE - each * (2 if against else 1)
    others = sum(weights)
    if others > room:
        weights = [weight * room // others for weight in weights]
    weights[candidate] = each
    if against:
        weights[against] = each
    weights[0] = WHOLE - sum(weights[1:])
    return tuple(weights)


def weights_of(experiment: Experiment, stage: int) -> tuple[int, ...]:
    """The arms' weights in a stage, 0 for the first.

    Without stages they are the written ones, untouched, so that nobody changes arm when the first decision is made.
    """
    written = tuple(arm.weight for arm in experiment.arms)
    compare = experiment.compare
    if compare is None or not experiment.ramp:
        return written
    return stage_weights(written, compare.candidate, compare.against, experiment.ramp[stage].share)
