"""What comes on a connection: its preface (RFC 9113 section 3.4), then frames (section 4.1), in pieces of any size."""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from meshcache.rpc.frames import ACK, HEAD_BYTES, PREFACE, SETTINGS, STREAM_MASK, Code, ConnectionFault

FRAME_BYTES: Final = 64 << 10
"""Largest frame that is taken."""
_HEAD: Final = struct.Struct(">HBBBL").unpack_from
"""A length of 24 bits, a type, flags, and a stream's number (section 4.1)."""
_OPENING_BYTES: Final = len(PREFACE) + HEAD_BYTES


class Incoming(asyncio.Protocol):
    """Cuts what comes into frames."""

    def __init__(self) -> None:
        self._greeted = False
        self._pieces: list[bytes] = []
        self._missing = 0

    def on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """A frame has come; raises `ConnectionFault`."""
        raise NotImplementedError

    def break_off(self, fault: ConnectionFault) -> None:
        """What has come is no HTTP/2: nothing more is taken."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if self._missing:
            # Not joined before all of it is there: a long frame comes in many pieces.
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        self._missing = 0
        try:
            at = 0 if self._greeted else self._greet(data)
            self._split(data, at)
        except ConnectionFault as fault:
            self.break_off(fault)

    def _greet(self, data: bytes) -> int:
        """Where the first frame begins."""
        known = len(PREFACE)
        if data[:known] != PREFACE[: len(data)]:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "not HTTP/2")
        if len(data) < _OPENING_BYTES:
            # Looked at again with the next byte: who speaks something else may wait for an answer already.
            self._keep(data, 1)
            return len(data)
        if data[known + 3] != SETTINGS or data[known + 4] & ACK:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a client begins with its settings")
        self._greeted = True
        return known

    def _split(self, data: bytes, at: int) -> None:
        end = len(data)
        while end - at >= HEAD_BYTES:
            high, low, kind, flags, number = _HEAD(data, at)
            size = high << 8 | low
            if size > FRAME_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            after = at + HEAD_BYTES + size
            if after > end:
                self._keep(data[at:], after - end)
                return
            self.on_frame(kind, flags, number & STREAM_MASK, data[at + HEAD_BYTES : after])
            at = after
        if at < end:
            self._keep(data[at:], HEAD_BYTES - (end - at))

    def _keep(self, rest: bytes, missing: int) -> None:
        self._pieces.append(rest)
        self._missing = missing
