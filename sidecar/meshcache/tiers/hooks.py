"""Where the tiers report what they did, without knowing of metrics or logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from meshcache.decisions import Stage, TierName


ChunkEvent = Literal["written", "shared", "read", "missing", "corrupt", "given-up"]


class TierHooks(Protocol):
    """Calls are made on the event loop; they are cheap and never raise."""

    def tier_error(self, tier: TierName, kind: str) -> None:
        """`tier` failed, by a `Trouble`."""
        ...

    def entry_refused(self, tier: TierName, reason: str) -> None:
        """What was read from `tier` was not used: for an envelope's `Reason` when it is not a valid one, `epoch` when
        it was invalidated, `purged`, `purge-unread` while not all purge rules are known here, `residence` when its time
        in the tier is over."""
        ...

    def evicted(self, tier: TierName, reason: str, count: int) -> None:
        """`count` entries left `tier` because they had `expired` or for want of `capacity`."""
        ...

    def write_dropped(self, tier: TierName, reason: str) -> None:
        """A write to `tier` was not made: `queue-full`, `breaker-open`, `invalidated`, `purged`, `no-epoch`."""
        ...

    def breaker(self, tier: TierName, opened: bool) -> None:
        """`tier` is left alone from now on (True), or is used again (False). Once per change."""
        ...

    def stage(self, stage: Stage, seconds: float) -> None:
        """A look-up in a tier, or a write to one, took so long."""
        ...

    def moved(self, direction: Literal["read", "written"], tier: TierName, size: int) -> None:
        """An envelope of `size` bytes was read from or written to `tier`."""
        ...

    def chunks(self, tier: TierName, event: ChunkEvent, count: int = 1) -> None:
        """`count` chunks of bodies were `written` to `tier`, `shared` (there already) or `read`; or what was to be read
        was `missing`, or `corrupt`; or they were `given-up`: the tier did not take them as fast as they came."""
        ...


class NoHooks:
    """Reports nothing."""

    def tier_error(self, tier: TierName, kind: str) -> None:
        """Do nothing."""

    def entry_refused(self, tier: TierName, reason: str) -> None:
        """Do nothing."""

    def evicted(self, tier: TierName, reason: str, count: int) -> None:
        """Do nothing."""

    def write_dropped(self, tier: TierName, reason: str) -> None:
        """Do nothing."""

    def breaker(self, tier: TierName, opened: bool) -> None:
        """Do nothing."""

    def stage(self, stage: Stage, seconds: float) -> None:
        """Do nothing."""

    def moved(self, direction: Literal["read", "written"], tier: TierName, size: int) -> None:
        """Do nothing."""

    def chunks(self, tier: TierName, event: ChunkEvent, count: int = 1) -> None:
        """Do nothing."""
