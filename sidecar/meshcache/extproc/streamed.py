"""Streamed immediate replies (Envoy 1.37 and later): an answer that is handed over piece by piece.

`ProcessingResponse.streamed_immediate_response` (11) is not among the generated classes, so its bytes are written here;
`tests/extproc/test_streamed.py` reads them with classes that know it. What Envoy makes of it, as was seen:
it is taken only in answer to the request's headers; the head goes out as it is (no `content-length` is added, repeated
fields collapse to the last); the pieces are taken as fast as they come, whatever the client's pace; and a stream that
ends without a last piece leaves the client waiting, unless it ends with an error: then he sees a broken answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.extproc.protobuf import delimited, varint

if TYPE_CHECKING:
    from meshcache.engine.outcome import Answer

# ProcessingResponse.streamed_immediate_response (11)
_STREAMED = b"\x5a"
# StreamedImmediateResponse.headers_response (1), body_response (2)
_HEAD, _BODY = b"\x0a", b"\x12"
# HttpHeaders.headers (1) > HeaderMap.headers (1) > HeaderValue.key (1), raw_value (3)
_MAP, _PAIR, _KEY, _VALUE = b"\x0a", b"\x0a", b"\x0a", b"\x1a"
_HEAD_ENDS = b"\x18\x01"  # HttpHeaders.end_of_stream (3)
_DATA = b"\x0a"  # StreamedBodyResponse.body (1)
_WITHOUT_CONTENT = frozenset({204, 304})
_BODY_ENDS = b"\x10\x01"  # StreamedBodyResponse.end_of_stream (2)


def said(outcome: Answer, length: int) -> dict[str, str]:
    """The whole head of the answer, whose body has `length` bytes.

    Lines of one name become one (RFC 9110 section 5.3); the one field for which that is wrong is never stored.
    """
    joined: dict[str, str] = {":status": str(outcome.status)}
    for name, value in outcome.stored.fields if outcome.excerpt is None else outcome.excerpt.fields:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    joined["content-length"] = str(length)
    if outcome.age is not None:
        joined["age"] = str(outcome.age)
    if outcome.cache_status:
        joined["cache-status"] = outcome.cache_status
    return joined


def head(outcome: Answer, length: int, *, end: bool = False) -> bytes:
    """What is `said`, as a message; `end` when no body follows, as with HEAD."""
    pairs = [
        delimited(_PAIR, delimited(_KEY, name.encode("latin-1")) + delimited(_VALUE, value.encode("latin-1")))
        for name, value in said(outcome, length).items()
    ]
    return delimited(_STREAMED, delimited(_HEAD, delimited(_MAP, b"".join(pairs)) + (_HEAD_ENDS if end else b"")))


def is_head_alone(outcome: Answer, method: str) -> bool:
    """Whether an answer is to be such a head, without a body.

    From an immediate reply without a body Envoy takes `content-type` and `content-length` away (seen with 1.40): an
    empty script would have no type, for which browsers refuse modules, and HEAD would not tell that a file is empty.
    """
    if outcome.excerpt is not None or outcome.status in _WITHOUT_CONTENT:
        return False
    if method == "HEAD":
        # Beside a body at hand Envoy tells the length of that, and sends nothing of it.
        return not outcome.stored.body
    return not outcome.size and any(name == "content-type" for name, _ in outcome.stored.fields)


def body(data: bytes, *, end: bool) -> bytes:
    """A piece of the body; `end` with the last."""
    tail = _BODY_ENDS if end else b""
    prefix = _DATA + varint(len(data))
    inner = len(prefix) + len(data) + len(tail)
    piece = _BODY + varint(inner)
    # Joined once, so that the data are copied once.
    return b"".join((_STREAMED, varint(len(piece) + inner), piece, prefix, data, tail))
