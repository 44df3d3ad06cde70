"""`meshcache serve`: the sidecar alone, for an Envoy that is already there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from meshcache.cli.paths import DEFAULT_DATA

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]


def serve(
    policies: Annotated[Path, typer.Option(help="Folder of policy files; watched.")] = Path("policies"),
    data: Annotated[Path, typer.Option(help="Folder for entries, keys and sockets.")] = DEFAULT_DATA,
    socket_dir: Annotated[
        Path | None,
        typer.Option(help="Worker i listens on worker-<i>.sock in it.  [default: <data>/run]", show_default=False),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Worker processes.")] = 1,
    warm: Annotated[
        str,
        typer.Option(envvar="MESHCACHE_WARM", help="redis:// or rediss://; else an LMDB file in the data folder."),
    ] = "",
    cold: Annotated[
        str, typer.Option(envvar="MESHCACHE_COLD", help="Store for large answers; else a folder in the data folder.")
    ] = "",
    metrics_listen: Annotated[
        str,
        typer.Option(
            help="HOST:PORT of /metrics, /healthz, /readyz; port 0: any.  [default: 127.0.0.1:9464]",
            show_default=False,
        ),
    ] = "",
    refresh_url: Annotated[
        str, typer.Option(help="Where background refreshes go: unix:<path> or http://HOST:PORT.")
    ] = "",
    revision: Annotated[str, typer.Option(help="Revision of the application, part of every key.")] = "",
    pod_labels: Annotated[Path, typer.Option(help="The pod's labels, from the downward API.")] = Path(
        "/etc/podinfo/labels"
    ),
    keys: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the signing keys.  [default: <data>/keys, made at first start]", show_default=False
        ),
    ] = None,
    drain_timeout: Annotated[
        float, typer.Option(min=0, max=600, help="Seconds for requests in flight when told to stop.")
    ] = 10.0,
    log_level: Annotated[Level, typer.Option(help="Least severe level that is logged.")] = "info",
    log_format: Annotated[Format, typer.Option(help="auto: readable on a terminal, else JSON.")] = "auto",
    parent: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Run the sidecar alone: ext_proc workers on unix sockets, under the policies of a folder.

    SIGTERM drains and stops; a second one stops at once. SIGUSR1 only turns readiness off.

    Example: meshcache serve --policies policies --workers 2 --warm redis://cache:6379
    """
    from meshcache.cli.sidecar import SidecarOptions, run_sidecar
    from meshcache.process import die_with_parent

    if parent:
        die_with_parent(parent)
    options = SidecarOptions(
        policies=policies,
        data=data,
        socket_dir=socket_dir or data / "run",
        workers=workers,
        warm_url=warm,
        cold_url=cold,
        metrics_listen=metrics_listen,
        refresh_url=refresh_url,
        revision=revision,
        pod_labels=pod_labels,
        keys=keys,
        drain_timeout=drain_timeout,
        log_level=log_level,
        log_format=log_format,
    )
    raise typer.Exit(asyncio.run(run_sidecar(options)))
