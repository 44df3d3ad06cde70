"""Calls of gRPC in header fields (gRPC over HTTP2, "Requests" and "Responses"), compressed with HPACK (RFC 7541)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from urllib.parse import quote

from hpack import Decoder, HPACKError

from meshcache.rpc.frames import Code, ConnectionFault

MOST_FIELD_BYTES: Final = 128 << 10
"""Of the fields of one call: names, values, and 32 for each (RFC 9113 section 6.5.2).

More than a request to Envoy may have: its tracer hands on what a client says, and a client who says much must not cost
the others their connection.
"""
MOST_MESSAGE: Final = 1024
"""Characters of the text that goes with a status: with it the block fits into the smallest frame that a client takes.

A character is twelve bytes at most when it is percent-encoded.
"""
_MEMORISED: Final = 64
"""Blocks of fields whose call is remembered."""
_LONGEST_MEMORISED: Final = 2 << 10
"""Bytes of such a block."""
_CONTENT_TYPE: Final = b"application/grpc"


class Status(IntEnum):
    """Status codes of gRPC that this side gives."""

    OK = 0
    NOT_FOUND = 5
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asks for: the method's full path, and whether it is asked for by gRPC at all."""

    path: str
    grpc: bool


class CallReader:
    """Reads the header blocks of one connection. They hang together: each is to be read, in order, and once.

    Envoy's calls are all alike but for what tracing adds. A block that leaves the table which both sides keep as it is
    means the same when it comes again: it is known by its bytes until a block changes the table. Reading one takes
    25 us otherwise.
    """

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MOST_FIELD_BYTES)
        self._known: dict[bytes, Call] = {}

    def read(self, block: bytes) -> Call:
        """The call that a header block makes; raises `ConnectionFault` for one that cannot be read."""
        known = self._known.get(block)
        if known is not None:
            return known
        newest, *sizes = self._table()
        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except (HPACKError, UnicodeDecodeError) as error:
            raise ConnectionFault(Code.COMPRESSION_ERROR, f"a header block cannot be read: {error}") from error
        grpc = fields.get(b":method") == b"POST" and bytes(fields.get(b"content-type", b"")).startswith(_CONTENT_TYPE)
        call = Call(bytes(fields.get(b":path", b"")).decode("latin-1"), grpc)
        now, *sizes_now = self._table()
        if now is not newest or sizes_now != sizes:
            self._known.clear()
            return call
        if len(block) > _LONGEST_MEMORISED:
            return call
        if len(self._known) == _MEMORISED:
            self._known.clear()
        self._known[block] = call
        return call

    def _table(self) -> tuple[object, int, int]:
        """What a change of the decoder's table changes: an entry is added in front, and others go behind."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return entries[0] if entries else None, len(entries), table.maxsize


def _literal(name: bytes, value: bytes) -> bytes:
    # Literal without indexing, new name (RFC 7541 section 6.2.2): the peer's table stays as it is.
    return b"\x00%b%b%b%b" % (_length(name), name, _length(value), value)


def _length(text: bytes) -> bytes:
    # An integer with a prefix of seven bits (RFC 7541 section 5.1); the first bit says that no Huffman code is used.
    left = len(text)
    if left < 0x7F:
        return bytes((left,))
    left -= 0x7F
    encoded = bytearray((0x7F,))
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


HEAD: Final = b"\x88" + _literal(b"content-type", _CONTENT_TYPE)
"""The header block that begins every answer: `:status` 200, the entry 8 of the table that never changes."""
NO_TABLE: Final = b"\x20"
"""In front of a header block: this side keeps no table of fields (RFC 7541 section 6.3), as it uses none."""
NOT_GRPC: Final = _literal(b":status", b"415")
"""The header block that answers what is no call of gRPC."""


def trailers(status: Status, message: str = "") -> bytes:
    """The header block that ends an answer."""
    fields = _literal(b"grpc-status", b"%d" % status)
    if message:
        # Percent-encoded (gRPC over HTTP2, "Status-Message").
        text = quote(message[:MOST_MESSAGE], safe=" !#$&'()*+,/:;=?@[]", errors="replace")
        fields += _literal(b"grpc-message", text.encode("ascii"))
    return fields
