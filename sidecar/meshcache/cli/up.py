"""`meshcache up`: Envoy, the sidecar and, if need be, an origin, on this machine with one command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from meshcache.cli.options import (
    Cold,
    Data,
    DrainTimeout,
    GrpcServer,
    LogLevel,
    LogRequests,
    MetricsListen,
    OriginTimeout,
    RefreshClusters,
    UseFilter,
    Warm,
    Workers,
    a_path,
)
from meshcache.cli.paths import DEFAULT_DATA


def up(
    origin: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Origin to cache, http://HOST:PORT or https://HOST:PORT; else a demo origin is started."
        ),
    ] = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where Envoy answers; port 0: any.")
    ] = "127.0.0.1:8080",
    policies: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=a_path,
            help="Folder of policy files; watched.  [default: ./policies, made from the examples when absent]",
            show_default=False,
        ),
    ] = None,
    warm: Warm = "",
    cold: Cold = "",
    workers: Workers = 1,
    concurrency: Annotated[
        int, typer.Option(min=1, max=256, metavar="N", help="Worker threads of Envoy; each has a hot tier of its own.")
    ] = 1,
    data: Data = DEFAULT_DATA,
    metrics_listen: MetricsListen = "",
    latency_ms: Annotated[int, typer.Option(min=0, max=30_000, metavar="MS", help="Delay of the demo origin.")] = 150,
    origin_timeout: OriginTimeout = 300.0,
    refresh_cluster: RefreshClusters = None,
    grpc: GrpcServer = "native",
    drain_timeout: DrainTimeout = 10.0,
    wasm: UseFilter = True,
    log_level: LogLevel = "info",
    log_requests: LogRequests = False,
) -> None:
    """Run Envoy with the cache in front of an origin, in the foreground. Ctrl-C drains and stops; a second, at once.

    Example: meshcache up --origin http://127.0.0.1:9000 --listen 127.0.0.1:8080 --workers 2
    """
    from meshcache.cli.stack import StackOptions, run_stack

    options = StackOptions(
        origin=origin,
        listen=listen,
        policies=policies,
        warm=warm,
        cold=cold,
        workers=workers,
        concurrency=concurrency,
        data=data,
        metrics_listen=metrics_listen,
        latency_ms=latency_ms,
        origin_timeout=origin_timeout,
        refresh_clusters=tuple(refresh_cluster or ()),
        grpc=grpc,
        drain_timeout=drain_timeout,
        wasm=wasm,
        log_level=log_level,
        log_requests=log_requests,
    )
    raise typer.Exit(asyncio.run(run_stack(options)))
