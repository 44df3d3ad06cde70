"""One request of a trace, and what can be wrong with a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from meshcache.message import Field

UNKNOWN_SIZE: Final = -1
BEGINNING: Final = 1_700_000_000.0
"""Unix seconds at which a trace begins that has no times, or counts from 0."""


class TraceRequest(msgspec.Struct, frozen=True, gc=False):
    """A recorded request and what the log says of its answer."""

    time: float
    """Unix seconds."""
    path: str
    """Path with query, beginning with a slash."""
    size: int = UNKNOWN_SIZE
    """Bytes of the answer's body; negative when the trace does not say."""
    status: int = 200
    method: str = "GET"
    host: str = ""
    """Empty when the trace does not say."""
    user: str = ""
    """Who asked, as far as the trace tells: a name, an identifier or an address; empty for nobody."""
    cache_control: str | None = None
    """The answer's `cache-control`, where the trace has a column for it."""
    fields: tuple[Field, ...] = ()
    """Further header fields of the request."""


class TraceError(Exception):
    """The trace cannot be read. One line that says what to do."""
