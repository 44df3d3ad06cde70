"""Experiments made by chance: users of very different habits, in arms, request by request.

Requests of one user are alike: each has a hit ratio, a slowness and a share of errors of its own, and some users make
most of the requests. In the scenarios with a cache, hits are no coins but follow from who asked for what before, in the
same arm, so that users of one arm depend on each other too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshcache.experiment.bins import ACCURACY, BINS, LOWEST
from meshcache.experiment.totals import BUCKETS, SAMPLE_GROUPS, ArmTotals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

HIT, MISS = 0.017, 0.184
"""Seconds: what the demo's answers take."""


@dataclass(frozen=True)
class Cache:
    """A cache of one lifetime, as each arm has one of its own."""

    keys: int = 10_000
    zipf: float = 1.0
    lifetime: float = 60.0
    own: float = 0.3
    """The share of requests that are for a user's own few keys."""


@dataclass(frozen=True)
class Scenario:
    """What happens in an experiment."""

    name: str
    users: int = 2_000
    zipf: float = 1.0
    """Users' requests are distributed by rank to this power."""
    hit_ratio: tuple[float, float] = (0.8, 0.8)
    """Of candidate and baseline."""
    alike: float = 2.0
    """Weight of the beta distribution of users' hit ratios: the less, the more they differ; 0 for no difference."""
    error_rate: tuple[float, float] = (0.01, 0.01)
    slower: float = 0.3
    """Standard deviation of the logarithm of users' slowness."""
    added: float = 0.0
    """Seconds that the candidate adds."""
    share: float = 0.1
    """Of candidate and of baseline, the rest is control."""
    requests: int = 15_000
    """In all arms."""
    rate: float = 200.0
    """Requests a second."""
    new_users_every: int = 0
    """Requests after which others take the users' place; 0 for the same all the time."""
    cache: Cache | None = None


@dataclass
class Requests:
    """Candidate's (0) and baseline's (1) requests in order; all arrays of one length."""

    number: NDArray[np.int64]
    arm: NDArray[np.int64]
    bucket: NDArray[np.int64]
    hit: NDArray[np.bool_]
    error: NDArray[np.bool_]
    latency: NDArray[np.float64]
    sampled: NDArray[np.bool_]


def requests(scenario: Scenario, seed: int) -> Requests:
    """One experiment's requests."""
    rng = np.random.default_rng(seed)
    weights = np.arange(1.0, scenario.users + 1) ** -scenario.zipf
    number = np.arange(scenario.requests)
    generation = number // scenario.new_users_every if scenario.new_users_every else np.zeros_like(number)
    rank = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(scenario.requests)).clip(max=len(weights) - 1)
    user = rank + scenario.users * generation
    everybody = scenario.users * (int(generation[-1]) + 1)
    drawn = rng.random(everybody)
    arms = np.where(drawn < scenario.share, 0, np.where(drawn < 2 * scenario.share, 1, 2))
    mean = np.array([*scenario.hit_ratio, scenario.hit_ratio[1]])[arms]
    own = rng.beta(scenario.alike * mean, scenario.alike * (1 - mean)) if scenario.alike else mean
    errors = np.array([*scenario.error_rate, scenario.error_rate[1]])[arms] * rng.exponential(1.0, everybody)
    slowness = np.exp(scenario.slower * rng.standard_normal(everybody))
    buckets = rng.integers(0, BUCKETS, everybody)
    counted = arms[user] < 2
    user, number = user[counted], number[counted]
    arm, bucket = arms[user], buckets[user]
    seconds = number / scenario.rate
    hit = _cached(scenario.cache, rng, user, arm, seconds) if scenario.cache else rng.random(len(user)) < own[user]
    latency = np.where(hit, HIT, MISS) * slowness[user] * np.exp(0.3 * rng.standard_normal(len(user)))
    latency = latency + scenario.added * (arm == 0)
    window = (seconds // 10).astype(np.int64)
    sampled = np.zeros(len(user), np.bool_)
    sampled[np.unique((window * 2 + arm) * BUCKETS + bucket, return_index=True)[1]] = True
    return Requests(number, arm, bucket, hit, rng.random(len(user)) < errors[user], latency, sampled)


def _cached(
    cache: Cache,
    rng: np.random.Generator,
    user: NDArray[np.int64],
    arm: NDArray[np.int64],
    seconds: NDArray[np.float64],
) -> NDArray[np.bool_]:
    weights = np.arange(1.0, cache.keys + 1) ** -cache.zipf
    shared = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(len(user)))
    own = cache.keys + user * 5 + rng.integers(0, 5, len(user))
    key = np.where(rng.random(len(user)) < cache.own, own, shared)
    until: dict[tuple[int, int], float] = {}
    hit = np.zeros(len(user), np.bool_)
    for index, (at, place) in enumerate(
        zip(seconds.tolist(), zip(arm.tolist(), key.tolist(), strict=True), strict=True)
    ):
        if until.get(place, -1.0) >= at:
            hit[index] = True
        else:
            until[place] = at + cache.lifetime
    return hit


def looks(scenario: Scenario, seed: int, every: int = 100) -> Iterator[tuple[ArmTotals, ArmTotals]]:
    """Candidate and baseline after each `every` requests of all arms; the same objects again and again."""
    made = requests(scenario, seed)
    arms = ArmTotals(), ArmTotals()
    growth = np.log((1 + ACCURACY) / (1 - ACCURACY))
    bins = np.ceil(np.log(np.maximum(made.latency / LOWEST, 1.0)) / growth).astype(np.int64).clip(max=BINS - 1)
    ends = np.searchsorted(made.number, np.arange(every, scenario.requests + 1, every))
    begin = 0
    for end in ends:
        for which, totals in enumerate(arms):
            chosen = np.flatnonzero(made.arm[begin:end] == which) + begin
            bucket, hit, latency = made.bucket[chosen], made.hit[chosen], made.latency[chosen]
            np.add.at(totals.requests, bucket, 1)
            np.add.at(totals.hits_hot, bucket, hit)
            np.add.at(totals.errors, bucket, made.error[chosen])
            np.add.at(totals.latency_us, bucket, (latency * 1e6).astype(np.int64))
            np.add.at(totals.latency_square, bucket, (latency**2 * 1e6).astype(np.int64))
            of_sample = chosen[made.sampled[chosen]]
            np.add.at(totals.sampled.counts, (made.bucket[of_sample] % SAMPLE_GROUPS, bins[of_sample]), 1)
        begin = int(end)
        yield arms
