"""`meshcache up`: Envoy, the sidecar and, if need be, an origin, on this machine with one command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from meshcache.cli.paths import DEFAULT_DATA

Level = Literal["debug", "info", "warning", "error"]


def up(
    origin: Annotated[
        str, typer.Option(help="Origin to cache, http://HOST:PORT or https://HOST; else a demo origin is started.")
    ] = "",
    listen: Annotated[str, typer.Option(help="HOST:PORT on which Envoy answers; port 0: any.")] = "127.0.0.1:8080",
    policies: Annotated[
        Path | None,
        typer.Option(
            help="Folder of policy files; watched.  [default: ./policies, made from the examples when absent]",
            show_default=False,
        ),
    ] = None,
    warm: Annotated[
        str,
        typer.Option(envvar="MESHCACHE_WARM", help="redis:// or rediss://; else an LMDB file in the data folder."),
    ] = "",
    cold: Annotated[
        str, typer.Option(envvar="MESHCACHE_COLD", help="Store for large answers; else a folder in the data folder.")
    ] = "",
    workers: Annotated[int, typer.Option(min=1, max=256, help="Worker processes of the sidecar.")] = 1,
    data: Annotated[Path, typer.Option(help="Folder for entries, keys, sockets and logs.")] = DEFAULT_DATA,
    metrics_listen: Annotated[
        str,
        typer.Option(
            help="HOST:PORT of /metrics, /healthz, /readyz; port 0: any.  [default: 127.0.0.1:9464]",
            show_default=False,
        ),
    ] = "",
    latency_ms: Annotated[int, typer.Option(min=0, max=30_000, help="Delay of the demo origin.")] = 150,
    drain_timeout: Annotated[
        float, typer.Option(min=0, max=600, help="Seconds for requests in flight when told to stop.")
    ] = 10.0,
    log_level: Annotated[Level, typer.Option(help="Least severe level that is logged.")] = "info",
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
        data=data,
        metrics_listen=metrics_listen,
        latency_ms=latency_ms,
        drain_timeout=drain_timeout,
        log_level=log_level,
    )
    raise typer.Exit(asyncio.run(run_stack(options)))
