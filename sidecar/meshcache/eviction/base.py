"""The base of every eviction order: it owns the size accounting, a subclass only orders and names the victim."""

from __future__ import annotations

from abc import ABC, abstractmethod


class EvictionOrder(ABC):
    """The keys of one pool with their sizes, in some order of giving up.

    The pool itself (the mapping from key to value) belongs to the caller, who adds, touches and removes keys
    here as he does there, and asks for the `victim` when the pool has to shrink. Not safe between threads.
    """

    __slots__ = ("_sizes", "bytes")

    def __init__(self) -> None:
        self._sizes: dict[bytes, int] = {}
        self.bytes = 0
        """Sum of the sizes of all keys."""

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, key: object) -> bool:
        return key in self._sizes

    def add(self, key: bytes, size: int, expires_at: float) -> None:
        """Take in `key` of `size` bytes that is worthless from `expires_at` (Unix seconds) on.

        A key that is there already is replaced: it counts once, with its new size, and as newly added.
        """
        if size < 0:
            raise ValueError(f"size is {size}, must not be negative")
        if key in self._sizes:
            self.remove(key)
        self._sizes[key] = size
        self.bytes += size
        self._added(key, expires_at)

    def resize(self, key: bytes, size: int) -> None:
        """Change the size of `key` (KeyError when absent) and leave its place in the order as it is."""
        if size < 0:
            raise ValueError(f"size is {size}, must not be negative")
        self.bytes += size - self._sizes[key]
        self._sizes[key] = size

    def remove(self, key: bytes) -> int:
        """Forget `key` and return its size, 0 when it was not there."""
        size = self._sizes.pop(key, None)
        if size is None:
            return 0
        self.bytes -= size
        self._removed(key)
        return size

    def clear(self) -> None:
        """Forget everything."""
        self._sizes.clear()
        self.bytes = 0
        self._cleared()

    @abstractmethod
    def touch(self, key: bytes) -> None:
        """Note that `key`, which is here, was used. On the request path: it must be constant time."""

    @abstractmethod
    def victim(self) -> bytes | None:
        """The key to give up next, or None when there is none. It stays until it is removed."""

    @abstractmethod
    def _added(self, key: bytes, expires_at: float) -> None: ...

    @abstractmethod
    def _removed(self, key: bytes) -> None: ...

    @abstractmethod
    def _cleared(self) -> None: ...
