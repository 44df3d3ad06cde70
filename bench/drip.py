"""An origin whose answers take their time: the head and a first chunk at once, the rest in drops over some 200 ms.

`python -m bench.drip PORT`
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from bench.processes import LOOPBACK

DROPS = 10
PAUSE_SECONDS = 0.02
DROP = b"a drop of a stream, and one of many\n"
BODY_BYTES = DROPS * len(DROP)
_CHUNK = b"%x\r\n%b\r\n" % (len(DROP), DROP)
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncache-control: max-age=3600\r\ntransfer-encoding: chunked\r\n\r\n"
)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request after another until the connection ends."""
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_HEAD + _CHUNK)
            for _ in range(DROPS - 1):
                await asyncio.sleep(PAUSE_SECONDS)
                writer.write(_CHUNK)
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(answer, LOOPBACK, port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
