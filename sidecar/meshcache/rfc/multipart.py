"""Several ranges in one answer: the media type `multipart/byteranges` (RFC 9110 section 14.6)."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from meshcache.rfc.ranges import format_content_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.rfc.ranges import ByteRange

_BOUNDARY_BYTES = 20


def multipart_byteranges(
    parts: Sequence[tuple[ByteRange, bytes]], *, total: int | None, content_type: str | None
) -> tuple[str, bytes]:
    """The `content-type` and the body of an answer with these parts, each with its place in a whole of `total` bytes.

    `content_type` is that of the representation, which each part repeats. The boundary is a digest of all the parts:
    nobody can put it into a representation, because it would have to contain its own digest.
    """
    digest = blake2b(digest_size=_BOUNDARY_BYTES)
    for _, content in parts:
        digest.update(content)
    boundary = digest.hexdigest()
    pieces: list[bytes] = []
    type_line = "" if content_type is None else f"content-type: {content_type}\r\n"
    for (first, last), content in parts:
        where = format_content_range(first, last, total)
        head = f"\r\n--{boundary}\r\n{type_line}content-range: {where}\r\n\r\n"
        pieces += (head.encode("latin-1", "replace"), content)
    pieces.append(f"\r\n--{boundary}--\r\n".encode("ascii"))
    return f"multipart/byteranges; boundary={boundary}", b"".join(pieces)
