"""Parts of a representation, as 206 responses bring them, until it is whole (RFC 9111 sections 3.3 and 3.4).

A part is a `StoredResponse` of status 206 whose `body` holds the bytes of its `spans`, one after the other, in the
order of their positions. It is stored beside the whole answer, never in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.rfc.ranges import ByteRange, satisfiable, strong_validator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshcache.engine.records import StoredResponse
    from meshcache.message import Field
    from meshcache.rfc.ranges import ContentRange, RangeSpec

PARTIAL_CONTENT: Final = 206

MOST_PIECES: Final = 16
"""Gaps within what is held of one representation are fewer than this; smaller pieces go first."""
MOST_GATHERED_BYTES: Final = 4 << 20
"""Pieces that do not make a whole are gathered up to here: each new one means that all are written again."""

MOST_REWRITTEN: Final = 16
"""A piece is gathered when it is at least this fraction of all that would be written again with it: many small ranges
of a large answer cost no more than so many times their own bytes."""

OF_ONE_CONTENT: Final = frozenset({"content-digest", "content-length", "content-md5", "content-range"})
"""Fields of the content that was sent, and so wrong beside other bytes of the same representation (RFC 9530 section 2,
RFC 2616 section 14.15)."""


def is_part(stored: StoredResponse) -> bool:
    """Whether this is a part, fit for requests for ranges within it only."""
    return stored.status == PARTIAL_CONTENT


def total_of(stored: StoredResponse) -> int | None:
    """Bytes of the whole representation; None when nobody has said."""
    if not is_part(stored):
        return stored.length
    return None if stored.total < 0 else stored.total


def part_of(received: StoredResponse, said: ContentRange) -> StoredResponse | None:
    """The part that a 206 brought, with what its `content-range` `said`; None when the two do not agree.

    The origin may err about the end: a 206 without a strong validator that has fewer bytes than it says, up to what it
    says is the last one, ends where its content ends. It serves ranges within it, and is never combined with others.
    """
    size, last, total = len(received.body), said.last, said.total
    if not size:
        return None
    if size != last - said.first + 1:
        ends = total is not None and total == last + 1
        if size > last - said.first + 1 or not ends or strong_validator_of(received) is not None:
            return None
        last = said.first + size - 1
        total = last + 1
    return msgspec.structs.replace(
        received,
        fields=tuple(field for field in received.fields if field[0] not in OF_ONE_CONTENT),
        spans=((said.first, last),),
        total=-1 if total is None else total,
    )


def ranges_of(stored: StoredResponse, wanted: Sequence[RangeSpec]) -> list[ByteRange] | None:
    """The bytes that are asked for, in order; None when what is stored does not hold all of them.

    An empty list means that the representation has none of them.
    """
    total = total_of(stored)
    if total is not None:
        found = satisfiable(wanted, total)
    else:
        # Without the length, only a range with both ends says which bytes it means.
        found = [ByteRange(first, last) for first, last in wanted if first is not None and last is not None]
        if len(found) < len(wanted):
            return None
    if is_part(stored) and not all(_within(stored, one) for one in found):
        return None
    return found


def read(stored: StoredResponse, wanted: ByteRange) -> bytes:
    """The bytes of a range that `ranges_of` has found."""
    if not is_part(stored):
        return stored.body[wanted.first : wanted.last + 1]
    offset = 0
    for first, last in stored.spans:
        if first <= wanted.first and wanted.last <= last:
            start = offset + wanted.first - first
            return stored.body[start : start + wanted.size]
        offset += last - first + 1
    return b""


def combinable(older: StoredResponse, newer: StoredResponse) -> bool:
    """Whether both are of one representation: the same strong validator, and no word against it (section 3.4)."""
    if older.key != newer.key or older.selecting != newer.selecting:
        return False
    totals = total_of(older), total_of(newer)
    if None not in totals and totals[0] != totals[1]:
        return False
    validator = strong_validator_of(newer)
    return validator is not None and validator == strong_validator_of(older)


def combined(older: StoredResponse, newer: StoredResponse) -> StoredResponse:
    """Both parts in one, with the newer one's fields where both have them; the newer alone where that must not be.

    When nothing is missing any more the result is no part but a whole 200. Both are parts of less than everything.
    """
    if not combinable(older, newer):
        return newer
    known = total_of(newer) if newer.total >= 0 else total_of(older)
    merged = _merged(_pieces(older), _pieces(newer))
    if len(merged) > 1 or known is None or len(merged[0][1]) < known:
        merged = _bounded(merged, newer.spans[0][0])
    replaced = {name for name, _ in newer.fields}
    return completed(
        msgspec.structs.replace(
            newer,
            fields=(*(field for field in older.fields if field[0] not in replaced), *newer.fields),
            authorized=older.authorized or newer.authorized,
            personal=older.personal or newer.personal,
            tags=tuple(dict.fromkeys((*newer.tags, *older.tags))),
            body=b"".join(content for _, content in merged),
            spans=tuple((first, first + len(content) - 1) for first, content in merged),
            total=-1 if known is None else known,
        )
    )


def completed(part: StoredResponse) -> StoredResponse:
    """The whole answer when the part holds all of it, else the part."""
    if part.total < 0 or part.spans != ((0, part.total - 1),):
        return part
    return msgspec.structs.replace(part, status=200, spans=(), total=-1)


def gap_of(part: StoredResponse) -> ByteRange | None:
    """The one run of bytes that is missing to the whole; None when there are several, or the end is not known."""
    if part.total < 0:
        return None
    gaps: list[ByteRange] = []
    at = 0
    for first, last in part.spans:
        if first > at:
            gaps.append(ByteRange(at, first - 1))
        at = last + 1
    if at < part.total:
        gaps.append(ByteRange(at, part.total - 1))
    return gaps[0] if len(gaps) == 1 else None


def strong_validator_of(stored: StoredResponse) -> Field | None:
    """The field that names its representation byte for byte, if there is one."""
    return strong_validator(stored.fields, response_time=stored.response_time)


def _within(part: StoredResponse, wanted: ByteRange) -> bool:
    return any(first <= wanted.first and wanted.last <= last for first, last in part.spans)


def _pieces(part: StoredResponse) -> Iterable[tuple[int, bytes]]:
    offset = 0
    for first, last in part.spans:
        size = last - first + 1
        yield first, part.body[offset : offset + size]
        offset += size


def _merged(older: Iterable[tuple[int, bytes]], newer: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The pieces of both, those that overlap or touch made one; where both have a byte, the newer one's is taken."""
    pieces = [(first, content, False) for first, content in older] + [
        (first, content, True) for first, content in newer
    ]
    pieces.sort(key=lambda piece: piece[0])
    runs: list[list[tuple[int, bytes, bool]]] = []
    end = -1
    for piece in pieces:
        if not runs or piece[0] > end:
            runs.append([])
        runs[-1].append(piece)
        end = max(end, piece[0] + len(piece[1]))
    merged = []
    for run in runs:
        if len(run) == 1:
            merged.append(run[0][:2])
            continue
        start = run[0][0]
        joined = bytearray(max(first + len(content) for first, content, _ in run) - start)
        for first, content, _ in sorted(run, key=lambda piece: piece[2]):
            joined[first - start : first - start + len(content)] = content
        merged.append((start, bytes(joined)))
    return merged


def _bounded(pieces: list[tuple[int, bytes]], newest: int) -> list[tuple[int, bytes]]:
    """As many of the pieces as may be gathered: the one that holds position `newest`, then the largest."""

    def by_worth(piece: tuple[int, bytes]) -> tuple[bool, int]:
        first, content = piece
        return first <= newest < first + len(content), len(content)

    kept: list[tuple[int, bytes]] = []
    room = MOST_GATHERED_BYTES
    for piece in sorted(pieces, key=by_worth, reverse=True)[:MOST_PIECES]:
        if kept and len(piece[1]) > room:
            continue
        kept.append(piece)
        room -= len(piece[1])
    return sorted(kept, key=lambda piece: piece[0])
