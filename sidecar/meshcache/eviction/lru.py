"""Least recently used: the victim is the key whose last use is longest ago."""

from __future__ import annotations

from collections import OrderedDict

from meshcache.eviction.base import EvictionOrder


class LruOrder(EvictionOrder):
    """Orders by last use; adding counts as a use. Every operation is constant time."""

    __slots__ = ("_recency",)

    def __init__(self) -> None:
        super().__init__()
        self._recency: OrderedDict[bytes, None] = OrderedDict()

    def touch(self, key: bytes) -> None:
        """Make `key` the most recently used."""
        self._recency.move_to_end(key)

    def victim(self) -> bytes | None:
        """The least recently used key."""
        return next(iter(self._recency), None)

    def _added(self, key: bytes, expires_at: float) -> None:  # noqa: ARG002  expiry plays no part in this order
        self._recency[key] = None

    def _removed(self, key: bytes) -> None:
        del self._recency[key]

    def _cleared(self) -> None:
        self._recency.clear()
