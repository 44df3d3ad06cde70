"""How long look-ups and background refreshes take is measured, whatever comes of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from envoy_streams import Stream, body, request, response

from cache_harness import Rig
from meshcache.engine.ports import RefreshError, RefreshRequest
from meshcache.engine.storing.fill import CopyBudget
from meshcache.extproc.conversation import ExternalProcessor
from meshcache.extproc.metering import EngineMeter
from meshcache.extproc.refresher import HttpRefresher
from meshcache.message import Headers
from meshcache.observe.metrics import Metrics
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path

    from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest


def measured(metrics: Metrics, stage: str) -> int:
    state = metrics.snapshot().histograms["request_stage_seconds"].get((stage,))
    return 0 if state is None else sum(state.counts)


async def test_every_request_that_is_looked_up_is_measured(tmp_path: Path) -> None:
    metrics = Metrics()
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}")) as rig:
        rig.cache.meter = EngineMeter(metrics)
        processor = ExternalProcessor(
            rig.cache, on_error=lambda stage, error: pytest.fail(f"{stage}: {error}"), lookup_timeout=5
        )

        async def talk(*messages: ProcessingRequest) -> str | None:
            stream = Stream(*messages)
            await processor.converse(stream)
            await rig.settle()
            return stream.kinds[0]

        # No tier is asked: the presence maps are empty.
        assert await talk(request(), response(), body(b"one", end=True)) == "request_headers"
        assert measured(metrics, "lookup") == 1
        assert await talk(request()) == "immediate_response"
        assert measured(metrics, "lookup") == 2
        rig.forget_memory()
        assert await talk(request()) == "immediate_response"
        assert measured(metrics, "lookup") == 3
        for bypassed in (request("PATCH"), request(if_match="*")):
            await talk(bypassed)
        assert measured(metrics, "lookup") == 3


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
