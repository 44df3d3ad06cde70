"""Either gRPC server of `serve` behind a real Envoy: what it answers, and how it is stopped while requests go on."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from own_envoy import behind_envoy
from running_mesh import PATIENCE, eventually, verdict
from scripted_origin import chunk, head

from meshcache.extproc.options import Grpc

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

CHUNKED = [("cache-control", "max-age=60"), ("transfer-encoding", "chunked")]


@pytest.mark.parametrize("server", list(Grpc))
async def test_it_answers_and_drains(make_folder, origin, path, server):
    going, begun, may_end = f"{path}/going", asyncio.Event(), asyncio.Event()
    large = b"0123456789abcdef" * 200_000

    async def in_two_halves(_asked, wire):
        await wire.send(head(CHUNKED) + chunk(b"half"))
        begun.set()
        await may_end.wait()
        await wire.send(chunk(b" and half") + chunk(b""))

    async def at_once(_asked, wire):
        await wire.send(head(CHUNKED) + chunk(large) + chunk(b""))

    origin.script(going, in_two_halves)
    origin.script(f"{path}/large", at_once)
    async with behind_envoy(make_folder(), origin, "--grpc", server, "--drain-timeout", "60") as mesh:
        first, second = await mesh.get(path), await mesh.get(path)
        assert verdict(first).stored
        assert verdict(second).hit
        assert second.content == first.content
        await mesh.get(f"{path}/large")
        kept = await eventually(lambda: mesh.hit(f"{path}/large"))
        assert kept.content == large
        assert (await mesh.get(path, method="DELETE")).status_code == 200
        assert not verdict(await mesh.get(path)).hit

        pid = (await mesh.status())["pid"]
        answering = asyncio.create_task(mesh.get(going))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        os.kill(pid, signal.SIGTERM)
        assert await eventually(lambda: refused(mesh, path)), "new requests pass it by"
        os.kill(pid, 0)
        may_end.set()
        answer = await asyncio.wait_for(answering, PATIENCE)
        assert (answer.status_code, answer.content) == (200, b"half and half")
        assert verdict(answer).stored
        assert await eventually(mesh.ended), "nothing is left to wait for"
        assert '"level": "error"' not in mesh.log, mesh.log


async def refused(mesh, path):
    """Whether a request goes to the origin without the sidecar."""
    answer = await mesh.get(path)
    assert answer.status_code == 200
    return "cache-status" not in answer.headers
