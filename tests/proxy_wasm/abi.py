"""Numbers and layouts of the proxy-wasm ABI 0.2.1."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TypeAlias

Pairs: TypeAlias = list[tuple[bytes, bytes]]
"""Header fields in order, with repeats; pseudo-headers are among them."""

PAIRS_MAX_BYTES = 1 << 20
PAIRS_MAX_COUNT = 1024


class Status(IntEnum):
    """What a host call returns."""

    OK = 0
    NOT_FOUND = 1
    BAD_ARGUMENT = 2
    INVALID_MEMORY_ACCESS = 6
    CAS_MISMATCH = 8
    INTERNAL_FAILURE = 10


class Map(IntEnum):
    """The header maps that a module may name."""

    REQUEST_HEADERS = 0
    REQUEST_TRAILERS = 1
    RESPONSE_HEADERS = 2
    RESPONSE_TRAILERS = 3
    GRPC_INITIAL_METADATA = 4
    GRPC_TRAILING_METADATA = 5
    CALL_HEADERS = 6
    CALL_TRAILERS = 7


class Buffer(IntEnum):
    """The buffers that a module may name."""

    REQUEST_BODY = 0
    RESPONSE_BODY = 1
    DOWNSTREAM_DATA = 2
    UPSTREAM_DATA = 3
    CALL_BODY = 4
    GRPC_MESSAGE = 5
    VM_CONFIGURATION = 6
    PLUGIN_CONFIGURATION = 7
    CALL_DATA = 8


class Metric(IntEnum):
    """Kinds of metrics; also the lowest two bits of a metric's id."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


CONTINUE = 0
"""The action by which a callback lets the stream go on."""


def pack_pairs(pairs: Pairs) -> bytes:
    """Serialise header fields: count, all lengths, then names and values, each with a NUL behind it."""
    sizes = b"".join(struct.pack("<II", len(name), len(value)) for name, value in pairs)
    return struct.pack("<I", len(pairs)) + sizes + b"".join(name + b"\0" + value + b"\0" for name, value in pairs)


def unpack_pairs(data: bytes) -> Pairs:
    """Parse header fields as Envoy does: what is malformed in any way is an empty list."""
    if not 4 <= len(data) <= PAIRS_MAX_BYTES:
        return []
    (count,) = struct.unpack_from("<I", data)
    at = 4 + 8 * count
    if count > PAIRS_MAX_COUNT or at > len(data):
        return []
    pairs: Pairs = []
    texts: list[bytes] = []
    for size in struct.unpack_from(f"<{2 * count}I", data, 4):
        end = at + size
        if data[end : end + 1] != b"\0":
            return []
        texts.append(data[at:end])
        at = end + 1
    if at != len(data):
        return []
    pairs.extend(zip(texts[::2], texts[1::2], strict=True))
    return pairs
