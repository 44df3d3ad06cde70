"""A process that serves ext_proc streams as a worker does: `python streams_served.py SOCKET native|grpcio`.

For each line on stdin it says on stdout how many bytes its heap has given out, free memory not counted. Garbage is
counted with `native`, which is to make none that the collector has to find; gRPC's library does.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import tempfile
from pathlib import Path

import uvloop

from meshcache.extproc.assembly import build
from meshcache.extproc.control import WorkerOptions
from meshcache.extproc.grpcio_transport import GrpcioTransport
from meshcache.extproc.options import Grpc
from meshcache.extproc.transport import NativeTransport, Transport
from meshcache.observe import logs
from meshcache.observe.metrics import Metrics
from meshcache.policy.documents import Documents
from policy_texts import experiment_and_off, policies

REST = 0.2
"""Seconds for what the last streams have begun to come to its end."""


class HeapInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *"abcdef", "uordblks", "fordblks", "keepcost")]


def bytes_in_use() -> int:
    if gc.isenabled():
        gc.collect()
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = HeapInfo
    used: int = library.mallinfo2().uordblks
    return used


async def serve(socket: str, kind: Grpc) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = WorkerOptions(index=0, workers=1, socket_path=socket, data_dir=folder, lookup_timeout=5)
        service = await build(options, Metrics(), logs.get_logger())
        documents = policies(freshness="{defaultTtl: 1h}", more=experiment_and_off())
        service.install(Documents.of([("test.yaml", documents)]), generation=1)
        served_by = NativeTransport if kind is Grpc.NATIVE else GrpcioTransport
        transport: Transport = served_by(service.failed)
        await transport.listen(Path(socket), service.converse)
        gc.collect()
        if kind is Grpc.NATIVE:
            gc.disable()
        print("serving", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            await asyncio.sleep(REST)
            print(bytes_in_use(), flush=True)
        await transport.stop(0)
        await service.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1], Grpc(sys.argv[2])))
