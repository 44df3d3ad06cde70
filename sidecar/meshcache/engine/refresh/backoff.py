"""When something that failed may be tried again: later each time, for a bounded number of keys."""

from __future__ import annotations

from collections import OrderedDict


class Backoff:
    """Pauses by key. Pure: `now` is seconds on any clock that the caller uses throughout.

    A pause is never taken to be longer than `longest`, whatever the clock does in the meantime.
    """

    __slots__ = ("_first", "_held", "_longest", "_most")

    def __init__(self, *, first: float, longest: float, most: int = 4096) -> None:
        """After one failure a pause of `first` seconds, doubled with each further one up to `longest`.

        `most` keys are remembered; beyond, the one that has been left alone for longest is forgotten.
        """
        self._first = first
        self._longest = longest
        self._most = most
        self._held: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        """Failures in a row, and when the pause ends."""

    def __len__(self) -> int:
        return len(self._held)

    def rests(self, key: bytes, now: float) -> bool:
        """Whether `key` is to be left alone at `now`."""
        held = self._held.get(key)
        return held is not None and now < held[1] <= now + self._longest

    def rest(self, key: bytes, now: float, seconds: float) -> None:
        """Leave `key` alone for `seconds`, which says nothing of how it fares."""
        held = self._held.get(key)
        self._set(key, 0 if held is None else held[0], now + min(seconds, self._longest))

    def failed(self, key: bytes, now: float) -> float:
        """One more failure: the seconds for which `key` is left alone from `now` on.

        One during a pause is of a try that began before it, and makes it no longer.
        """
        held = self._held.get(key)
        if held is not None and held[0] and now < held[1] <= now + self._longest:
            return held[1] - now
        failures = 1 if held is None else held[0] + 1
        # Twice for each failure before; the power is bounded, lest a long row of them makes a huge number.
        pause = min(self._longest, self._first * 2.0 ** min(failures - 1, 32))
        self._set(key, failures, now + pause)
        return pause

    def succeeded(self, key: bytes) -> None:
        """All is well again."""
        self._held.pop(key, None)

    def _set(self, key: bytes, failures: int, until: float) -> None:
        self._held[key] = (failures, until)
        self._held.move_to_end(key)
        if len(self._held) > self._most:
            self._held.popitem(last=False)
