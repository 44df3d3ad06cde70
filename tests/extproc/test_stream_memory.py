"""What streams leave behind in a process that serves them: nothing, however they end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from envoy_streams import body, request, response

from meshcache.extproc.options import METHOD, SERVICE

HERE = Path(__file__).parent
WARM_UP, ROUNDS, LOOKS = 400, 800, 6
MOST = 20.0
"""Bytes of each round of three streams, Python objects among them. It was 3 over 6,400 rounds; a pointer kept for each
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

    def talk(self, *messages: ProcessingRequest) -> None:
        """Send the messages one after the other, each after the reply to the one before, and reset the stream."""
        asked = iter(messages)
        call = self._open(asked)
        for _ in messages:
            next(call)
        call.cancel()

    def bytes_in_use(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    paths = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, HERE / "streams_served.py", tmp_path / "socket"],
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
    """A hit, a miss, and a client that leaves before there is an answer."""
    served.talk(request())
    served.talk(request(path="/miss"), response(cache_control="no-store"))
    served.talk(request(path="/left"))


@pytest.mark.slow
def test_streams_that_are_reset_leave_nothing_behind(served: Served) -> None:
    served.talk(request(), response(cache_control="max-age=3600"), body(b"one", end=True))
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
