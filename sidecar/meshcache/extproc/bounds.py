"""Room for changes to the header fields of a message that Envoy hands over.

Envoy bounds how many fields a message has and how long they are together. Where a message is beyond a bound after
ext_proc has changed it, Envoy answers with 500 instead. The bounds are not told to ext_proc, but they are seldom other
ones than these: a message that would be a little beyond one of them may be bound by it, and is left as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envoy.service.ext_proc.v3.external_processor_pb2 import HttpHeaders

    from meshcache.message import Field

COUNTS: Final = (100, 200)
"""Fields, with the pseudo-header fields: Envoy's own bound, and that of `meshcache up` (`envoy.clusters`)."""
SIZES: Final = (60 << 10, 96 << 10)
"""Bytes of all names and values: the same two."""
_FRAMING: Final = 16
"""Bytes for each field, at most, by which a serialised message is longer than its names and values."""
_MORE_FIELDS: Final = 16
"""As many may be there beyond the bound: pseudo-header fields do not count when a message is read, and Envoy's own
come on top."""
_MORE_BYTES: Final = 4 << 10
"""The same in bytes."""


def room(part: HttpHeaders, fields: Iterable[Field] = ()) -> bool:
    """Whether the message may be changed so that it has `fields` besides its own."""
    held = len(part.headers.headers)
    longest = part.ByteSize()
    least, most, count = longest - _FRAMING * held, longest, held
    for name, value in fields:
        count += 1
        most += len(name) + len(value)
    if count <= COUNTS[0] and most <= SIZES[0]:
        # As good as always.
        return True
    return not (
        any(bound < count and held <= bound + _MORE_FIELDS for bound in COUNTS)
        or any(bound < most and least <= bound + _MORE_BYTES for bound in SIZES)
    )
