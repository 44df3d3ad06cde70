"""The options that several commands have, each with its type, its limits and what `--help` says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

DEFAULT_METRICS_LISTEN: Final = "127.0.0.1:9464"

Level = Literal["debug", "info", "warning", "error"]


def a_path(text: str | Path) -> Path:
    """A path that was given. Raises `typer.BadParameter` for an empty one, which `Path` takes for the current folder:
    most often it is a variable of a script that holds nothing.
    """
    if text == "":
        raise typer.BadParameter("expected a path, got an empty text")
    return Path(text)


Warm = Annotated[
    str,
    typer.Option(
        envvar="MESHCACHE_WARM", metavar="URL", help="redis:// or rediss://; else an LMDB file in the data folder."
    ),
]
Cold = Annotated[
    str,
    typer.Option(envvar="MESHCACHE_COLD", metavar="DIR", help="Folder for large answers; else one in the data folder."),
]
Workers = Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Worker processes of the sidecar.")]
Data = Annotated[Path, typer.Option(metavar="DIR", parser=a_path, help="Folder for entries, keys, sockets and logs.")]
MetricsListen = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help=f"Where /metrics, /healthz and /readyz are; port 0: any.  [default: {DEFAULT_METRICS_LISTEN}]",
        show_default=False,
    ),
]
OriginTimeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        max=3600,
        metavar="SECONDS",
        help="Seconds without a byte from the origin after which it counts as failed: 504, or a stale answer.",
    ),
]
RefreshClusters = Annotated[
    list[str] | None,
    typer.Option(
        "--refresh-cluster",
        metavar="NAME=URL",
        help="Further place for background refreshes, for `refresh.via: NAME` in policies; may be repeated.",
        show_default=False,
    ),
]
GrpcServer = Annotated[
    Literal["native", "grpcio"],
    typer.Option(
        metavar="SERVER", help="What speaks gRPC to Envoy: native, or grpcio, gRPC's own library, which is slower."
    ),
]
DrainTimeout = Annotated[
    float,
    typer.Option(min=0, max=600, metavar="SECONDS", help="Seconds for requests in flight when told to stop."),
]
LogLevel = Annotated[
    Level, typer.Option(metavar="LEVEL", help="Least severe level that is logged: debug, info, warning, error.")
]
UseFilter = Annotated[
    bool,
    typer.Option(
        "--wasm/--no-wasm", help="Hot answers from Envoy's own memory, by the filter that comes with meshcache."
    ),
]
LogRequests = Annotated[bool, typer.Option("--log-requests", help="Log one line for each request, at level info.")]


def refresh_cluster_name(text: str) -> str:
    """`--refresh-cluster NAME`: a name that `refresh.via` of a policy may hold. Raises `UsageError`."""
    from meshcache.policy.values import cluster
    from meshcache.process import UsageError

    try:
        return cluster(text)
    except ValueError as error:
        raise UsageError(f"--refresh-cluster: {error}") from error


def in_utf8(value: str | list[str] | None) -> str | list[str] | None:
    """Text, or texts, that can be sent and kept: what a terminal with another encoding sends cannot."""
    for text in [value] if isinstance(value, str) else value or ():
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise typer.BadParameter(f"expected text in UTF-8, got {text!r}")
    return value


RunningData = Annotated[Path, typer.Option(metavar="DIR", parser=a_path, help="Data folder of the running meshcache.")]
AdminSocket = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", parser=a_path, help="Its admin socket.  [default: <data>/run/admin.sock]", show_default=False
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", parser=a_path, help="File with its token.  [default: <data>/admin.token]", show_default=False
    ),
]
ResultAsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
