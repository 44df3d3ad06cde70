"""Bodies that are stored in chunks: how a body is cut, what a chunk is called, and which chunks a part of it needs.

A chunk is named by the digest of its bytes, so that equal chunks, and with them equal bodies, are stored once. The
digest is of another domain (its `person`) than those that records are stored under. What belongs to one person is
named under a hash of him and of its key: nothing else shares it, so that it can go with its record. Behind the digest
stands the pool (`engine/pools.py`), as in a storage key: arms share no chunks.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.engine.pools import COMMON, DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshcache.engine.records import StoredResponse

INLINE_BYTES: Final = 1 << 20
"""The longest body that is stored inside its record."""
CHUNK_BYTES: Final = 256 << 10
"""Length of every chunk but the last. A record says by which length it was cut."""
WHOLE_BYTES: Final = 8 << 20
"""The longest body in chunks that is put together in memory: where Envoy takes no answer in pieces, which is once the
origin has been asked."""

_PERSON: Final = b"meshcache chunk"
_OWNER_PERSON: Final = b"meshcache owner"


class Piece(NamedTuple):
    """A part of one chunk."""

    digest: bytes
    start: int
    stop: int


def digest(chunk: bytes, owner: bytes = b"", pool: bytes = COMMON) -> bytes:
    """The name of a chunk, among those of `owner` (see `owner_of`) in `pool`."""
    return hashlib.blake2b(chunk, digest_size=DIGEST_BYTES, key=owner, person=_PERSON).digest() + pool


def owner_of(stored: StoredResponse) -> bytes:
    """Whose chunks those of `stored` are: everybody's (empty), or this person's for this key alone (32 bytes)."""
    if not stored.subject:
        return b""
    return hashlib.blake2b(stored.key, digest_size=32, key=stored.subject[:64], person=_OWNER_PERSON).digest()


def pieces(stored: StoredResponse, offset: int, length: int) -> Iterator[Piece]:
    """The parts of chunks that make up `length` bytes of the body from `offset` on, in order.

    Raises `ValueError` when the body does not have them.
    """
    if offset < 0 or length < 0 or offset + length > stored.length:
        raise ValueError(f"bytes {offset} to {offset + length} of a body of {stored.length}")
    step, end = stored.chunk_bytes, offset + length
    while offset < end:
        number, start = divmod(offset, step)
        stop = min(step, start + end - offset)
        yield Piece(stored.chunks[number], start, stop)
        offset += stop - start
