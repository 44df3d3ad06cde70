"""Frames of HTTP/2 (RFC 9113 section 4): their numbers, and the bytes of those that a server sends. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client begins a connection with (section 3.4)."""
HEAD_BYTES: Final = 9
"""Length of a frame's head."""
STREAM_MASK: Final = 0x7FFF_FFFF
"""Of 32 bits, those that are a stream's number or a window's increment; the first one is reserved."""
LARGEST_WINDOW: Final = 0x7FFF_FFFF
"""The most bytes that a window may allow (section 6.9.1)."""
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_BYTES: Final = 16_384
DEFAULT_TABLE_BYTES: Final = 4_096
"""What each holds for as long as the peer has not said otherwise (section 6.5.2)."""
MOST_FRAME_BYTES: Final = (1 << 24) - 1

# Types (section 6). Plain numbers: they are compared for each frame.
DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

# Flags.
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20


class Setting(IntEnum):
    """Settings (section 6.5.2) that either side looks at."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class Code(IntEnum):
    """Error codes (section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB


class ConnectionFault(Exception):  # noqa: N818 - a fault of the peer's, by the name of the RFC an error
    """The peer has broken the protocol so that the connection is of no use any more (section 5.4.1)."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamFault(Exception):  # noqa: N818 - as above
    """The peer has broken the protocol on one stream, which is reset (section 5.4.2)."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame."""
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3), kind, flags, stream.to_bytes(4), payload)


def settings(values: dict[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    payload = b"".join(setting.to_bytes(2) + value.to_bytes(4) for setting, value in values.items())
    return frame(SETTINGS, 0, 0, payload)


def window_update(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame: so many bytes more may be sent to us, on a stream or (0) on all of them together."""
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4))


def reset(stream: int, code: Code) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4))


def goaway(last_stream: int, code: Code, why: str = "") -> bytes:
    """A GOAWAY frame: streams after `last_stream` are not served."""
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4) + code.to_bytes(4) + why.encode()[:200])


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding (sections 6.1, 6.2); raises `ConnectionFault`."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """The settings of a SETTINGS frame, in order, those that nobody here knows among them; raises `ConnectionFault`."""
    if len(payload) % 6:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, "settings are six bytes each")
    found = []
    for at in range(0, len(payload), 6):
        name, value = int.from_bytes(payload[at : at + 2]), int.from_bytes(payload[at + 2 : at + 6])
        if name == Setting.INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes")
        if name == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME_BYTES <= value <= MOST_FRAME_BYTES:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame size outside of 2^14 to 2^24-1")
        if name == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "push is neither on nor off")
        found.append((name, value))
    return found
