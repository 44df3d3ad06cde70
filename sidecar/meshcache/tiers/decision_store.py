"""Where what has been decided about experiments is kept, and who may decide: what both stores have in common.

**Fencing.** One process leads, by a lease with a time limit; but a process may be stopped for any while after it has
looked at its lease. So each new leader gets a token, and the store itself refuses what comes with an older one. What a
person decides comes without a token, from any pod. Both have to name the version that they follow: whoever has looked
at an older one is refused, looks again, and decides anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from meshcache.experiment.state import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RETENTION: Final = 90 * 86400.0
"""Seconds for which an experiment that is in no file any more is remembered."""

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Record)


class StoreError(Exception):
    """The store cannot be used now. One line, for people, without credentials."""


class Stored(msgspec.Struct, frozen=True):
    """What a store holds."""

    records: dict[str, Record]
    """By name of the experiment."""
    incarnation: str = ""
    """Of the store's data: another one when they were lost."""


class DecisionStore(Protocol):
    """Implemented by a file and by Redis. All calls raise `StoreError`."""

    where: str
    """For people, without credentials."""

    async def lead(self, seconds: float) -> str | None:
        """The token by which this process leads for `seconds` from now on; None while another one does.

        Whoever leads calls it again before that time is over, and keeps its token.
        """
        ...

    async def step_down(self) -> None:
        """Lead no more, if this process did."""
        ...

    async def read(self) -> Stored:
        """Everything. Cheap when nothing has changed."""
        ...

    async def write(self, record: Record, token: str | None) -> bool:
        """Put `record` in the place of the version before it; None for `token`: by a person's word.

        False, and nothing is changed: another version is there, or another process has led since.
        """
        ...

    async def offer(self, records: Iterable[Record]) -> None:
        """Put back what the store has lost: each record takes the place of none and of older versions."""
        ...

    async def forget(self, record: Record, token: str) -> bool:
        """Remove a record of this version. False as for `write`."""
        ...

    async def wait(self, seconds: float) -> None:
        """Return when something may have changed, at the latest after `seconds`."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...


def encoded(record: Record) -> bytes:
    """A record as it is stored."""
    return _encoder.encode(record)


def decoded(value: Any) -> Record | None:
    """The record in `value`; None for what this release does not understand."""
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return None


def remembered(records: Mapping[str, Record], now: float) -> dict[str, Record]:
    """Those that are not so long gone that they are to be forgotten."""
    return {name: record for name, record in records.items() if not record.absent or now - record.absent < RETENTION}
