"""Fixtures: a folder for sockets, a bootstrap's options, and a running Envoy with everything around it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from envoy_rig import RecordingOrigin, Rig, ScriptedSidecar, start_sidecar

from meshcache.envoy.bootstrap import BootstrapOptions, Origin
from meshcache.envoy.process import EnvoyProcess


@pytest.fixture
def short_folder() -> Any:
    """A folder whose path leaves room for a socket's name (pytest's own may be too long for it)."""
    with tempfile.TemporaryDirectory(prefix="mc-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def options(short_folder: Path) -> BootstrapOptions:
    return BootstrapOptions(
        listen=("127.0.0.1", 0),
        origin=Origin("127.0.0.1", 9),
        worker_sockets=(short_folder / "worker-0.sock",),
        refresh_socket=short_folder / "refresh.sock",
        admin=short_folder / "envoy-admin.sock",
    )


@pytest.fixture
async def make_rig(options: BootstrapOptions, short_folder: Path) -> AsyncIterator[Callable[..., Awaitable[Rig]]]:
    """Start the whole, with changes to the bootstrap's options by name."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**changes: Any) -> Rig:
            origin = RecordingOrigin()
            listener = await asyncio.start_server(origin.serve, "127.0.0.1", 0)
            stack.callback(listener.close)
            origin.port = listener.sockets[0].getsockname()[1]
            sidecar = ScriptedSidecar()
            server = await start_sidecar(sidecar, options.worker_sockets[0])
            stack.push_async_callback(server.stop, 0)
            # Longer than in production: what a slow machine takes is nothing that these tests are about.
            mine = replace(options, **{"origin": Origin("127.0.0.1", origin.port), "message_timeout": 5.0} | changes)
            envoy = await stack.enter_async_context(EnvoyProcess(mine, short_folder))
            port = await envoy.listen_port()
            client = await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10)
            )
            return Rig(short_folder, mine, origin, sidecar, envoy, server, client, port)

        yield make
