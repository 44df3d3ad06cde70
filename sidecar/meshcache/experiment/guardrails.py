"""What a guardrail makes of an estimate."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcache.experiment.findings import Estimate
    from meshcache.policy.compiled import Guardrail


class Standing(StrEnum):
    """How a guardrail stands."""

    HELD = "Held"
    """The harm is within what is allowed, whatever the truth within the bounds is."""
    BREACHED = "Breached"
    """The harm is beyond what is allowed, whatever the truth within the bounds is."""
    INCONCLUSIVE = "Inconclusive"
    """The data do not tell, or there are none."""


def standing(guardrail: Guardrail, estimate: Estimate, units: int) -> Standing:
    """`units` are those of the smaller arm. A bound that is NaN tells nothing: it neither passes nor fails."""
    if units < guardrail.min_units:
        return Standing.INCONCLUSIVE
    least, most = estimate.towards(guardrail.increase)
    if not least <= most:
        return Standing.INCONCLUSIVE
    if least > guardrail.allowed:
        return Standing.BREACHED
    return Standing.HELD if most <= guardrail.allowed else Standing.INCONCLUSIVE
