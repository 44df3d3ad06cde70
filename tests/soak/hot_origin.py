"""The origin of the soak of the hot tier: what it has of an object changes with each POST."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import cast

from soak.sizes import TAGS, body_of


@dataclass
class Origin:
    """What there is, and how often it was asked for."""

    versions: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    """By GET."""
    made: int = 0
    """Versions, each by one POST."""

    def answer(self, method: str, path: str) -> bytes:
        """The bytes of a whole answer."""
        if method == "POST":
            self.made += 1
            self.versions[path] += 1
            made = b"%d" % self.versions[path]
            return b"HTTP/1.1 200 x\r\ncontent-length: %d\r\n\r\n" % len(made) + made
        self.asked += 1
        body = body_of(path, self.versions[path])
        tag = int(path.rpartition("/")[2]) % TAGS
        head = (
            f"HTTP/1.1 200 x\r\ncache-control: max-age=300\r\ncache-tag: t{tag}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class OriginProtocol(asyncio.Protocol):
    """One connection; requests come one after the other, without bodies."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            method, path, _ = self._buffer[: self._buffer.index(b"\r\n")].decode("latin-1").split(" ")
            self._buffer = self._buffer[end + 4 :]
            self._transport.write(self._origin.answer(method, path))
