"""A server on a unix socket that comes back when the name has gone."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import structlog
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from meshcache.admin import kept
from meshcache.admin.kept import KeptServer
from meshcache.admin.server import EmbeddedServer


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("here")(scope, receive, send)


async def answers(path: Path) -> bool:
    try:
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path)), timeout=2) as client:
            return (await client.get("http://x/")).text == "here"
    except httpx.HTTPError:
        return False


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 30
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeptServer]:
    monkeypatch.setattr(kept, "INTERVAL", 0.05)
    (tmp_path / "run").mkdir()
    server = KeptServer(app, tmp_path / "run" / "a.sock", 0o600, structlog.get_logger())
    await server.start()
    yield server
    await server.stop()


async def test_it_comes_back_with_its_folder_and_goes_at_the_end(server: KeptServer, tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.sock"
    path.unlink()
    path.parent.rmdir()
    await until(lambda: answers(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await server.stop()
    assert not path.exists()


async def test_one_that_cannot_be_started_anew_is_tried_again_and_leaves_nothing(
    server: KeptServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "a.sock"
    start, stop = EmbeddedServer.start, EmbeddedServer.stop
    started: list[EmbeddedServer] = []
    stopped: list[EmbeddedServer] = []

    async def slow(self: EmbeddedServer) -> None:
        started.append(self)
        await start(self)
        if len(started) == 1:
            raise TimeoutError

    async def counted(self: EmbeddedServer) -> None:
        stopped.append(self)
        await stop(self)

    monkeypatch.setattr(EmbeddedServer, "start", slow)
    monkeypatch.setattr(EmbeddedServer, "stop", counted)
    path.unlink()

    async def tried_again() -> bool:
        return len(started) == 2 and len(stopped) == 2

    await until(tried_again)
    assert await answers(path)
    await server.stop()
    # The one that was there at first, the one that failed, and the one in its place.
    assert len(stopped) == 3
    assert stopped[0] is started[0]
    assert stopped[-1] is started[1]
