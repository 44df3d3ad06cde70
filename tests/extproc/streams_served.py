"""A process that serves ext_proc streams by `grpc.aio`: `python streams_served.py SOCKET`.

For each line on stdin it says on stdout how many bytes its heap has given out, garbage and free memory not counted.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import tempfile
from pathlib import Path

import grpc

from cache_harness import Rig
from meshcache.extproc.conversation import ExternalProcessor
from policy_texts import policies


class HeapInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *"abcdef", "uordblks", "fordblks", "keepcost")]


def bytes_in_use() -> int:
    gc.collect()
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = HeapInfo
    used: int = library.mallinfo2().uordblks
    return used


async def serve(socket: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Rig(Path(folder), policies(freshness="{defaultTtl: 1h}")) as rig:
            processor = ExternalProcessor(rig.cache, on_error=lambda *_: sys.exit(1), lookup_timeout=5)
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((processor.handler(),))
            server.add_insecure_port(f"unix:{socket}")
            await server.start()
            print("serving", flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                print(bytes_in_use(), flush=True)
            await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
