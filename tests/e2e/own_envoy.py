"""`meshcache serve` behind an Envoy of a test's own, for what `meshcache up` does not put there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from policy_sets import POLICIES
from running_mesh import Mesh
from scripted_origin import ScriptedOrigin

from meshcache.envoy.bootstrap import BootstrapOptions
from meshcache.envoy.clusters import Origin
from meshcache.envoy.process import EnvoyProcess

MESSAGE_TIMEOUT = 2.0
"""Seconds that Envoy waits for the sidecar: as long as it is told to under policies that let requests wait."""


def mesh_under(policies: str, folder: Path, origin: str = "") -> Mesh:
    """A sidecar that is to be served in `folder` under these policies."""
    (folder / "policies").mkdir()
    (folder / "policies" / "policies.yaml").write_text(policies)
    return Mesh(folder, origin, folder / "policies")


def options_beside(mesh: Mesh, origin: Origin, **more: Any) -> BootstrapOptions:
    """What the bootstrap of an Envoy beside it is made of."""
    return BootstrapOptions(
        listen=("127.0.0.1", 0),
        origin=origin,
        worker_sockets=(mesh.data / "run" / "worker-0.sock",),
        refresh_socket=mesh.folder / "refresh.sock",
        admin=mesh.folder / "envoy-admin.sock",
        **{"message_timeout": MESSAGE_TIMEOUT} | more,
    )


@contextlib.asynccontextmanager
async def envoy_of(mesh: Mesh, options: BootstrapOptions, folder: Path) -> AsyncIterator[None]:
    """An Envoy in front of `mesh`, with its files in `folder`, until the end of the block."""
    async with EnvoyProcess(options, folder) as envoy:
        mesh.base = f"http://127.0.0.1:{await envoy.listen_port()}"
        mesh.client = httpx.AsyncClient(base_url=mesh.base, trust_env=False, timeout=20)
        yield
        await mesh.client.aclose()


@contextlib.asynccontextmanager
async def sidecar_under(policies: str, folder: Path, origin: str) -> AsyncIterator[Path]:
    """A sidecar alone, until the end of the block; the folder of its sockets, where Envoy's `refresh.sock` is to be."""
    mesh = mesh_under(policies, folder, origin)
    run = mesh.data / "run"
    try:
        await mesh.serve("--refresh-url", f"unix:{run / 'refresh.sock'}")
        yield run
    finally:
        await mesh.stop()


@contextlib.asynccontextmanager
async def behind_envoy(
    folder: Path, origin: ScriptedOrigin, *arguments: str, policies: str = POLICIES, **options: Any
) -> AsyncIterator[Mesh]:
    """A sidecar with more `arguments` behind an Envoy with more `options`, until the end of the block."""
    mesh = mesh_under(policies, folder, origin.url)
    made = options_beside(mesh, Origin("127.0.0.1", origin.port), **options)
    try:
        await mesh.serve("--refresh-url", f"unix:{made.refresh_socket}", *arguments)
        async with envoy_of(mesh, made, folder / "envoy"):
            yield mesh
    finally:
        await mesh.stop()
