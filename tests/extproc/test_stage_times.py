"""How long look-ups and background refreshes take is measured, whatever comes of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from grpc.aio import EOF

from meshcache.engine.cache import Cache
from meshcache.engine.fill import CopyBudget
from meshcache.engine.ports import RefreshError, RefreshRequest
from meshcache.extproc import wire
from meshcache.extproc.conversation import ExternalProcessor
from meshcache.extproc.metering import EngineMeter
from meshcache.extproc.refresher import HttpRefresher
from meshcache.message import Headers
from meshcache.observe.metrics import Metrics
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.tiers.board import Board
from meshcache.tiers.memory import MemoryTier
from meshcache.tiers.objects import ObjectTier
from meshcache.tiers.signing import Keyring
from meshcache.tiers.stack import TierStack

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = """
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: p}
spec: {}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: all}
spec: {match: [{path: {prefix: /}}], policyRef: {name: p}}
"""


def measured(metrics: Metrics, stage: str) -> int:
    state = metrics.snapshot().histograms["request_stage_seconds"].get((stage,))
    return 0 if state is None else sum(state.counts)


class Stream:
    """One stream of ext_proc that ends after the request's headers."""

    def __init__(self, **pseudo: str) -> None:
        message = ProcessingRequest()
        message.request_headers.end_of_stream = True
        for name, value in pseudo.items():
            message.request_headers.headers.headers.add(key=f":{name}", raw_value=value.encode())
        self._messages = [message]
        self.replies: list[bytes] = []

    async def read(self) -> object:
        return self._messages.pop(0) if self._messages else EOF

    async def write(self, reply: bytes) -> None:
        self.replies.append(reply)


async def test_a_look_up_beyond_memory_is_measured(tmp_path: Path) -> None:
    metrics, board, keyring = Metrics(), Board(tmp_path / "board"), Keyring([bytes(32)], bytes(32))
    cold = ObjectTier(tmp_path / "cold", 1 << 20, board)
    cache = Cache(
        stack=TierStack(MemoryTier(1 << 20), None, cold, board, keyring),
        leases=board,
        refresher=None,
        meter=EngineMeter(metrics),
        clock=lambda: 1e9,
        spawn=lambda work: work.close(),
        render=wire.render,
        copy_bytes=1 << 20,
    )
    cache.install(compile_documents(Documents.of([("a.yaml", POLICIES)]), generation=1, secret=b""))
    processor = ExternalProcessor(
        cache, on_error=lambda stage, error: pytest.fail(f"{stage}: {error}"), lookup_timeout=5
    )
    for path, expected in (("*", 0), ("/a", 1), ("/b", 2)):
        stream = Stream(method="GET", authority="a", path=path, scheme="http")
        if expected:
            with pytest.raises(asyncio.CancelledError):
                await processor.converse(None, stream)  # type: ignore[arg-type]
        else:
            await processor.converse(None, stream)  # type: ignore[arg-type]
        assert len(stream.replies) == 1
        assert measured(metrics, "lookup") == expected
    await cache.stack.close()


async def test_a_refresh_is_measured_whether_or_not_it_succeeds() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody")
        await writer.drain()
        writer.close()

    metrics = Metrics()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        refresher = HttpRefresher(
            f"http://127.0.0.1:{port}", on_end=lambda seconds: EngineMeter(metrics).stage("refresh", seconds)
        )
        request = RefreshRequest("http", "a.example", "/x", Headers())
        response, body = await refresher.fetch(request, 4, CopyBudget(100))
        assert (response.status, body) == (200, b"body")
        assert measured(metrics, "refresh") == 1
        with pytest.raises(RefreshError, match="longer than 3 bytes"):
            await refresher.fetch(request, 3, CopyBudget(100))
        assert measured(metrics, "refresh") == 2
        await refresher.close()
