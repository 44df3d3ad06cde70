"""Pools: whose share of a tier's capacity an entry takes.

Every arm of an experiment has a pool of its own, everything else is in the common one. A storage key tells by itself:
behind its digest of 32 bytes stands its pool, 8 bytes for an arm's and nothing for the common one. So neither a look-up
nor a store has to be told, names of chunks included, and what was stored before there were pools is in the common one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGEST_BYTES: Final = 32
POOL_BYTES: Final = 8
COMMON: Final = b""
"""The pool of whatever is no arm's."""


def pool_of(key: bytes) -> bytes:
    """The pool of a storage key, or of the name of a chunk."""
    return key[DIGEST_BYTES:]


@dataclass(frozen=True, slots=True)
class Division:
    """How the capacity of every tier is divided: fractions between 0 and 1, whose sum is 1 at most."""

    arms: Mapping[bytes, float] = field(default_factory=lambda: MappingProxyType({}))
    """By pool."""
    common: float = 1.0
    joined: frozenset[bytes] = frozenset()
    """Pools without a share whose entries are in use: they move to the common one. Others without one are given up."""

    def pool(self, key: bytes) -> bytes:
        """Whose share `key` takes: arms that are not known (any more) live off the common one."""
        pool = key[DIGEST_BYTES:]
        return pool if pool in self.arms else COMMON

    def part(self, pool: bytes, whole: int) -> int:
        """How many bytes of a `whole` a pool of `pool` (see there) has."""
        return int(whole * (self.arms[pool] if pool else self.common))


UNDIVIDED: Final = Division()
"""Nobody compares anything: one pool with everything."""
