"""Which arm of an experiment a unit belongs to: sticky, weighted, and without any stored state.

Weighted rendezvous hashing (Thaler and Ravishankar 1998; weights after Schindelhauer and Schomaker 2005): each arm
draws for each unit a time from an exponential distribution whose rate is the arm's weight, and the earliest wins.
An arm's share is its weight over the sum of weights. A unit moves from arm A to arm B only when B's weight has grown
in proportion to A's; so when one weight changes, or when several grow together at the cost of one, exactly the
share that has to move does. Where there are still others, which stay as they are, those that change among themselves
draw together against them first, and then among themselves: else units of the others would change places with theirs.
"""

from __future__ import annotations

import hashlib
import re
from copy import copy
from enum import StrEnum
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshcache.message import Headers


_UNIT = 2.0**-53
_GROUP = -1
"""Stands for the arms of the group among the others."""
_TOGETHER = 0x6D6573686361636
"""Makes another seed of control's, for the draw of the group as a whole."""

Draw = tuple[int, int, float]
"""Place, seed and scale of an arm; the place of the group as a whole is -1."""


class Draws(NamedTuple):
    """All by which an `Assigner` chooses, for who chooses alike elsewhere. Secret."""

    key: bytes
    """Of the digest, 32 bytes."""
    apart: tuple[Draw, ...]
    """The first draw: among those that are not in the group, and the group as a whole. Without any there is none."""
    together: tuple[Draw, ...]
    """The draw within the group, where the first has chosen that, or there is none."""


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
    LAYERED = "layered"
    """Several experiments are on the route, and came to their arms in different ways."""
    DECIDED = "decided"
    """Everybody has this arm: the experiment was stopped, rolled back, or an arm of it promoted."""


class Assigner:
    """Assigns the units of one experiment to its arms.

    The unit is hashed with BLAKE2b under a key derived from `secret` and the experiment's name: without the secret
    nobody can compute who gets which arm, and two experiments split their units independently of each other. The
    digest, which is secret by then, is mixed with each arm's own seed by XXH3, which is fast.
    """

    __slots__ = ("_apart", "_group", "_key", "_keyed", "_seeds", "_together")

    def __init__(
        self, secret: bytes, experiment: str, arms: Sequence[tuple[str, int]], group: Iterable[int] = ()
    ) -> None:
        """`arms` are names and weights, of which at least one is above 0; the order has no influence on shares.

        `group` are the places of those that change among themselves: control, candidate and baseline.
        """
        root = hashlib.blake2b(secret, digest_size=32, person=b"meshcache-arm").digest()
        key = self._key = hashlib.blake2b(experiment.encode(), key=root, digest_size=32).digest()
        self._keyed = hashlib.blake2b(key=key, digest_size=16)
        self._seeds = tuple(_seed(key, name) for name, _ in arms)
        self._group = frozenset(group)
        self._weigh([weight for _, weight in arms])

    def weighted(self, weights: Sequence[int]) -> Assigner:
        """The same arms with other weights, one for each in their order."""
        made = copy(self)
        made._weigh(weights)
        return made

    def _weigh(self, weights: Sequence[int]) -> None:
        drawn = [(index, self._seeds[index], weight) for index, weight in enumerate(weights) if weight > 0]
        if not drawn:
            raise ValueError("at least one arm needs a weight above 0")
        together = [one for one in drawn if one[0] in self._group]
        apart = [one for one in drawn if one[0] not in self._group]
        if together and apart:
            seed = self._seeds[min(self._group)] ^ _TOGETHER
            apart.append((_GROUP, seed, sum(weight for _, _, weight in together)))
        self._apart = _scaled(apart)
        self._together = _scaled(together)

    @property
    def draws(self) -> Draws:
        """See there."""
        return Draws(self._key, self._apart, self._together)

    def digest(self, unit: bytes) -> bytes:
        """The keyed digest of `unit`, 16 bytes: what the experiment knows it by."""
        keyed = self._keyed.copy()
        keyed.update(unit)
        return keyed.digest()

    def pick(self, digest: bytes) -> int:
        """The place of the arm of the unit with this digest, among the arms as given."""
        if self._apart:
            chosen = _earliest(digest, self._apart)
            if chosen != _GROUP:
                return chosen
        return _earliest(digest, self._together)

    def choose(self, unit: bytes) -> int:
        """The place of the arm of `unit`, among the arms as given."""
        return self.pick(self.digest(unit))


def _scaled(drawn: Iterable[tuple[int, int, int]]) -> tuple[Draw, ...]:
    return tuple((index, seed, -1 / weight) for index, seed, weight in drawn)


def _earliest(digest: bytes, draws: tuple[Draw, ...]) -> int:
    chosen = 0
    earliest = float("inf")
    for index, seed, scale in draws:
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
    """The first value of cookie `name`, or None when it is absent or empty.

    What `Headers.cookies` says, without taking all apart: a line full of cookies would keep the event loop from others
    five times as long.
    """
    if "cookie" not in headers.names:
        return None
    for line in headers.get_all("cookie"):
        found = _cookie(name).search(line)
        if found is not None:
            return found[1] or None
    return None


@lru_cache(maxsize=256)
def _cookie(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:\A|;)[ \t]*{re.escape(name)}(?:=([^;]*)|(?=;|\Z))")
