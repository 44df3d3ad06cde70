"""What streams leave behind in a process that serves them: nothing, however they end, whatever carries them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from envoy_streams import body, response
from envoy_streams import request as asked

from meshcache.extproc.options import METHOD, SERVICE, Grpc

HERE = Path(__file__).parent
WARM_UP, ROUNDS, LOOKS = 400, 800, 6
MOST = 20.0
"""Bytes of each round of four streams, Python objects among them. It was 3 over 6,400 rounds; a pointer kept for each
stream makes 33, the 80 bytes of an operation of gRPC in some of the streams 80 and more."""

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only the GNU C library tells what it has given out"
)


class Served:
    """A process that serves streams, and a client of it that resets each of its streams, as Envoy does."""

    def __init__(self, process: subprocess.Popen[str], channel: grpc.Channel) -> None:
        self._process = process
        self._open: Any = channel.stream_stream(
            f"/{SERVICE}/{METHOD}", ProcessingRequest.SerializeToString, ProcessingResponse.FromString
        )

    def talk(self, *messages: ProcessingRequest, end: bool = False) -> None:
        """Send the messages and reset the stream when each has its reply; `end`: after its end was sent as well."""
        over = threading.Event()

        def sent() -> Iterator[ProcessingRequest]:
            yield from messages
            if not end:
                over.wait()

        call = self._open(sent())
        for _ in messages:
            next(call)
        call.cancel()
        over.set()

    def bytes_in_use(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture(params=list(Grpc))
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    paths = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, HERE / "streams_served.py", tmp_path / "socket", request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Python's own allocator has its memory from the system, not from the heap that is looked at.
        env={**os.environ, "PYTHONPATH": paths, "PYTHONMALLOC": "malloc"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    with process, grpc.insecure_channel(f"unix:{tmp_path / 'socket'}") as channel:
        try:
            yield Served(process, channel)
        finally:
            process.stdin.close()  # type: ignore[union-attr]


def a_round(served: Served) -> None:
    """Two hits, a miss, and a client that leaves before there is an answer."""
    served.talk(asked())
    served.talk(asked(), end=True)
    served.talk(asked(path="/miss"), response(cache_control="no-store"))
    served.talk(asked(path="/left"))


@pytest.mark.slow
def test_streams_that_are_reset_leave_nothing_behind(served: Served) -> None:
    served.talk(asked(), response(cache_control="max-age=3600"), body(b"one", end=True))
    for _ in range(WARM_UP):
        a_round(served)
    before = served.bytes_in_use()
    grown = []
    for look in range(1, LOOKS + 1):
        for _ in range(ROUNDS):
            a_round(served)
        grown.append((served.bytes_in_use() - before) / (look * ROUNDS))
        if grown[-1] < MOST:
            return
    pytest.fail(f"bytes for each round, more rounds from look to look: {grown}")
