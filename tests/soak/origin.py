"""The origin of a soak: answers by path, as `mix.py` says, over bare HTTP/1.1."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from soak.mix import CACHE_CONTROL, body_of, large_size

if TYPE_CHECKING:
    import socket

SLOW_SECONDS: Final = 0.05
_HALF: Final = 200


class OriginProtocol(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not `isinstance`: uvloop's are no subclass.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head, self._buffer = self._buffer[:end].decode("latin-1"), self._buffer[end + 4 :]
            self._answer(head)

    def _answer(self, head: str) -> None:
        line, *lines = head.split("\r\n")
        method, path, _ = line.split(" ")
        fields = dict(item.lower().split(": ", 1) for item in lines if ": " in item)
        kind, _, rest = path[1:].partition("/")
        if kind == "slow":
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self._write, whole(method, path, kind, rest, fields))
        elif kind == "cut":
            data = whole(method, path, kind, rest, fields)
            self._write(data[: data.find(b"\r\n\r\n") + _HALF])
            asyncio.get_running_loop().call_later(0.002, self._close)
        else:
            self._write(whole(method, path, kind, rest, fields))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def whole(method: str, path: str, kind: str, rest: str, fields: dict[str, str]) -> bytes:
    """The bytes of a whole answer."""
    tag = f'"{kind}"'
    head = [f"cache-control: {CACHE_CONTROL.get(kind, 'max-age=600')}", f"etag: {tag}", "content-type: text/plain"]
    if kind == "language":
        head.append("vary: accept-language")
    if method == "POST":
        return b"HTTP/1.1 204 x\r\n\r\n"
    if fields.get("if-none-match") == tag:
        return "\r\n".join(["HTTP/1.1 304 x", *head]).encode() + b"\r\n\r\n"
    body = b"L" * large_size(int(rest)) if kind == "large" else body_of(path)
    if kind == "chunked":
        head.append("transfer-encoding: chunked")
        sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        head.append(f"content-length: {len(body)}")
        sent = body
    if method == "HEAD":
        sent = b""
    return "\r\n".join(["HTTP/1.1 200 x", *head]).encode() + b"\r\n\r\n" + sent


async def start(listening: socket.socket) -> asyncio.Server:
    """An origin that serves what comes there."""
    return await asyncio.get_running_loop().create_server(OriginProtocol, sock=listening)
