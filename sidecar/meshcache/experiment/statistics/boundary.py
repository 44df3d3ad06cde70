"""How far an estimate may be from the truth when one looks at it again and again: the normal mixture boundary.

A fixed-sample interval is estimate +- 1.96 standard errors; whoever looks often enough finds it to be wrong sooner or
later. A confidence sequence uses a wider factor z(t), such that P(any t: |Z(t)| > z(t)) <= alpha for the standardised
error Z. Mixing the exponential martingales of Brownian motion over a normal prior gives (Robbins 1970; Howard, Ramdas,
McAuliffe and Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences", section 3.2, two-sided
normal mixture; Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, "Time-uniform central limit theory and
asymptotic confidence sequences", Annals of Statistics 52, theorem 2.2, whose rho^2 is 1 / rho here)

    z(t)^2 = (1 + rho / t) (ln(1 + t / rho) + 2 ln(1 / alpha)),

with t the intrinsic time: the variance that the sum has gathered so far. As there, the variance is estimated, and the
promise is asymptotic: minimum data before a verdict (`ratios`) stand for what is missing.

**Why it holds for bucket sums.** The boundary is made for a sum whose increments are independent. Ours is a sum over
units whose requests come interleaved, so the increments of one unit depend on each other. Let W(t) be the sum of
deviations, V(t) its variance, and let later increments not be negatively correlated with what the sum was before, as
they are when units differ from each other (one gets many hits, another few). Then Cov(W(s), W(t)) >= V(s) for s < t,
so that the correlation of Z(s) and Z(t) is at least sqrt(V(s) / V(t)), what it is for Brownian motion at the times
V(s) and V(t). By Slepian's lemma (1962; Gaussian processes of equal variances, the one with larger correlations stays
below any boundary with larger probability), applied to either side, the boundary is crossed at most as often as by
Brownian motion. The time that is put in is therefore V(t), the cluster-robust variance of the sum, which counts a
unit's hundred equal requests as the hundred-squared they contribute; not the number of requests.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw

Floats = NDArray[np.float64]

VERDICT_AT: Final = 1_000.0
"""The intrinsic time at which the boundary is tightest, counted in requests: see `ratios`. A boundary has one such
time, fixed beforehand."""


@cache
def mixture_scale(alpha: float, at: float = VERDICT_AT) -> float:
    """The rho for which z is smallest at time `at`: at / (-W(-alpha^2 / e) - 1).

    W is the lower branch of Lambert's function; it follows from setting the derivative of z^2 with respect to rho to
    zero (Howard et al. 2021, section 3.5).
    """
    return at / float(-np.real(lambertw(-(alpha**2) / np.e, -1)) - 1)


def factor(time: Floats | float, alpha: float, at: float = VERDICT_AT) -> Floats:
    """z(t): how many standard errors wide either side is at intrinsic time `time` > 0; infinite at 0."""
    rho = mixture_scale(alpha, at)
    with np.errstate(divide="ignore", invalid="ignore"):
        squared = (1 + rho / np.asarray(time, np.float64)) * (np.log1p(time / rho) - 2 * np.log(alpha))
    return np.where(np.asarray(time) > 0, np.sqrt(squared), np.inf)
