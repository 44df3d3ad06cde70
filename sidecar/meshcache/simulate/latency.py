"""How long answers take in a replay: a trace knows no more than that they came."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshcache.decisions import TierName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_HIT = 0.017
DEFAULT_MISS = 0.184
"""Seconds; a hit of a cache of images behind a proxy, and a small model's inference."""


@dataclass(frozen=True)
class LatencyModel:
    """Seconds to the end of an answer, by where it comes from.

    With `sigma` above 0 each is drawn from a lognormal distribution with that median and that standard deviation of the
    logarithm: the long tail that services have. The same `seed` gives the same latencies.
    """

    miss: float = DEFAULT_MISS
    """From the origin, whether it sends an answer or says that the stored one is still right."""
    hit: Mapping[TierName, float] = field(default_factory=lambda: dict.fromkeys(TierName, DEFAULT_HIT))
    sigma: float = 0.0
    seed: int = 1

    def sampler(self) -> Callable[[float], float]:
        """What makes a latency of its median."""
        if not self.sigma:
            return float
        gauss, sigma, exp = random.Random(self.seed).gauss, self.sigma, math.exp  # noqa: S311 - no secret
        return lambda median: median * exp(gauss(0.0, sigma))
