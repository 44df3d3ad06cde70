"""Which arm of an experiment a unit belongs to: sticky, weighted, and without any stored state.

Weighted rendezvous hashing (Thaler and Ravishankar 1998; weights after Schindelhauer and Schomaker 2005): each arm
draws for each unit a time from an exponential distribution whose rate is the arm's weight, and the earliest wins.
An arm's share is its weight over the sum of weights. A unit moves from arm A to arm B only when B's weight has grown
in proportion to A's; so when one weight changes, or when several grow together at the cost of one, exactly the
share that has to move does.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from math import log
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.message import Headers


_UNIT = 2.0**-53


class AssignedBy(StrEnum):
    """How a request came to its arm."""

    NONE = "none"
    """There is no experiment on the route."""
    FORCED = "forced"
    """A trusted header named the arm."""
    HASHED = "hashed"
    """The unit's keyed hash chose."""
    NO_UNIT = "no-unit"
    """The request carries no unit, so it got the first arm."""


class Assigner:
    """Assigns the units of one experiment to its arms.

    The unit is hashed with BLAKE2b under a key derived from `secret` and the experiment's name: without the secret
    nobody can compute who gets which arm, and two experiments split their units independently of each other. The
    digest, which is secret by then, is mixed with each arm's own seed by XXH3, which is fast.
    """

    __slots__ = ("_arms", "_keyed")

    def __init__(self, secret: bytes, experiment: str, arms: Sequence[tuple[str, int]]) -> None:
        """`arms` are names and weights, of which at least one is above 0; the order has no influence on shares."""
        root = hashlib.blake2b(secret, digest_size=32, person=b"meshcache-arm").digest()
        key = hashlib.blake2b(experiment.encode(), key=root, digest_size=32).digest()
        self._keyed = hashlib.blake2b(key=key, digest_size=16)
        self._arms = tuple(
            (index, _seed(key, name), -1 / weight) for index, (name, weight) in enumerate(arms) if weight > 0
        )
        if not self._arms:
            raise ValueError("at least one arm needs a weight above 0")

    def choose(self, unit: bytes) -> int:
        """The index of the arm of `unit`, among the arms as given."""
        keyed = self._keyed.copy()
        keyed.update(unit)
        digest = keyed.digest()
        chosen = 0
        earliest = float("inf")
        for index, seed, scale in self._arms:
            # 53 bits and a half: strictly between 0 and 1, so that the logarithm is finite and below zero, as is
            # the factor beside it: the negative mean of the arm's distribution.
            time = log(((xxh3_64_intdigest(digest, seed) >> 11) + 0.5) * _UNIT) * scale
            if time < earliest:
                earliest = time
                chosen = index
        return chosen


def _seed(key: bytes, arm: str) -> int:
    return int.from_bytes(hashlib.blake2b(arm.encode(), key=key, digest_size=8).digest(), "big")


def cookie_value(headers: Headers, name: str) -> str | None:
    """The first value of cookie `name`, or None when it is absent or empty."""
    if "cookie" not in headers.names:
        return None
    return next((value for key, value in headers.cookies() if key == name), None) or None
