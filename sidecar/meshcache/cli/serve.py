"""`meshcache serve`: the sidecar alone, for an Envoy that is already there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from meshcache.cli.options import (
    Cold,
    Data,
    DrainTimeout,
    GrpcServer,
    LogLevel,
    LogRequests,
    MetricsListen,
    Warm,
    Workers,
    a_path,
    in_utf8,
)
from meshcache.cli.paths import DEFAULT_DATA, run_folder

Format = Literal["auto", "json", "console"]


def serve(
    policies: Annotated[
        Path,
        # One that cannot be read is no wrong usage: what was in force before it could not, may serve.
        typer.Option(metavar="DIR", parser=a_path, help="Folder of policy files; watched."),
    ] = Path("policies"),
    data: Data = DEFAULT_DATA,
    socket_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=a_path,
            help="Worker i listens on worker-<i>.sock in it.  [default: <data>/run]",
            show_default=False,
        ),
    ] = None,
    workers: Workers = 1,
    warm: Warm = "",
    cold: Cold = "",
    metrics_listen: MetricsListen = "",
    refresh_url: Annotated[
        str, typer.Option(metavar="URL", help="Where background refreshes go: unix:<path> or http://HOST:PORT.")
    ] = "",
    refresh_cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Envoy cluster that a policy may name in `refresh.via`; may be repeated. --refresh-url is then a"
            " listener as `envoy-config` makes it.",
            show_default=False,
        ),
    ] = None,
    show_all_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RANGE",
            help="Addresses whose clients see all of cache-status, where the CacheConfig names nobody in"
            " trust.cacheStatus; may be repeated.",
            show_default=False,
        ),
    ] = None,
    revision: Annotated[
        str, typer.Option(metavar="NAME", callback=in_utf8, help="Revision of the application, part of every key.")
    ] = "",
    pod_labels: Annotated[
        Path, typer.Option(metavar="FILE", parser=a_path, help="The pod's labels, from the downward API.")
    ] = Path("/etc/podinfo/labels"),
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=a_path,
            help="Folder of the signing keys.  [default: <data>/keys, made at first start]",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=a_path,
            help="File with the token for purges.  [default: <data>/admin.token, made at first start]",
            show_default=False,
        ),
    ] = None,
    lookup_timeout: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=600,
            metavar="SECONDS",
            help="Seconds that Envoy waits for a reply (message_timeout); look-ups end a little earlier."
            "  [default: what the policies need at the start]",
            show_default=False,
        ),
    ] = None,
    grpc: GrpcServer = "native",
    drain_timeout: DrainTimeout = 10.0,
    log_level: LogLevel = "info",
    log_requests: LogRequests = False,
    log_format: Annotated[
        Format, typer.Option(metavar="FORMAT", help="json, console, or auto: readable on a terminal, else JSON.")
    ] = "auto",
    parent: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Run the sidecar alone: ext_proc workers on unix sockets, under the policies of a folder.

    SIGTERM drains and stops; a second one stops at once. SIGUSR1 only turns readiness off.

    Example: meshcache serve --policies policies --workers 2 --warm redis://cache:6379
    """
    from meshcache.cli.sidecar import SidecarOptions, run_sidecar
    from meshcache.extproc.options import Grpc
    from meshcache.process import die_with_parent

    if parent:
        die_with_parent(parent)
    options = SidecarOptions(
        policies=policies,
        data=data,
        socket_dir=socket_dir or run_folder(data),
        workers=workers,
        warm_url=warm,
        cold_url=cold,
        metrics_listen=metrics_listen,
        refresh_url=refresh_url,
        refresh_clusters=tuple(refresh_cluster or ()),
        show_all_to=tuple(show_all_to or ()),
        revision=revision,
        pod_labels=pod_labels,
        keys=keys,
        token_file=token_file,
        lookup_timeout=lookup_timeout,
        grpc=Grpc(grpc),
        drain_timeout=drain_timeout,
        log_level=log_level,
        log_requests=log_requests,
        log_format=log_format,
    )
    raise typer.Exit(asyncio.run(run_sidecar(options)))
