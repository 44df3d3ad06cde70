"""`meshcache envoy-config`: the Envoy configuration that meshcache needs, to read or to paste."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from meshcache.cli.options import OriginTimeout, Workers, a_path
from meshcache.cli.paths import DEFAULT_DATA, run_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLAIN_POLICY = """
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: default}
spec: {eviction: lru}
"""


def envoy_config(
    origin: Annotated[
        str, typer.Option(metavar="URL", help="Where requests go: http://HOST:PORT or https://HOST:PORT.")
    ] = "http://127.0.0.1:8000",
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where Envoy answers.")] = "127.0.0.1:8080",
    workers: Workers = 1,
    socket_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=a_path,
            help="Folder of the sidecar's sockets, as in `meshcache serve --socket-dir`."
            f"  [default: {run_folder(DEFAULT_DATA)}, as there]",
            show_default=False,
        ),
    ] = None,
    policies: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=a_path,
            help="Policy files by whose deadlines Envoy's timeout is set.  [default: a policy that sets no deadlines]",
            show_default=False,
        ),
    ] = None,
    origin_timeout: OriginTimeout = 300.0,
    refresh_cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=URL]",
            help="Cluster that background refreshes may go to by name; may be repeated. bootstrap: with the URL of the"
            " cluster to be made; filter: without, for one that your Envoy has.",
            show_default=False,
        ),
    ] = None,
    wasm: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=a_path,
            help="The filter for hot answers, where Envoy finds it.  [default: the one that comes with meshcache]",
            show_default=False,
        ),
    ] = None,
    no_wasm: Annotated[bool, typer.Option("--no-wasm", help="No filter: every answer comes from the sidecar.")] = False,
    format: Annotated[  # noqa: A002 - the option's name on the command line
        Literal["bootstrap", "filter"],
        typer.Option(
            metavar="FORMAT",
            help="bootstrap: a whole configuration; filter: the filters and the cluster for an Envoy of yours.",
        ),
    ] = "bootstrap",
    json: Annotated[bool, typer.Option("--json", help="Print JSON; otherwise YAML.")] = False,
) -> None:
    """Print Envoy configuration that puts the sidecar in front of an origin.

    Of `--format filter`, the first filter goes in front of all filters, meshcache.wasm and ext_proc behind
    authentication and authorization, the router last; the clusters and the layer of layered_runtime go to those of the
    bootstrap. With --refresh-cluster there is a listener for background refreshes as well, which go to the first of
    these clusters unless a policy names another.

    Example: meshcache envoy-config --origin http://127.0.0.1:9000 --workers 2 > envoy.yaml
    """
    from meshcache.cli.app import CommandError
    from meshcache.envoy.render import to_json, to_yaml
    from meshcache.policy.errors import PolicyErrors
    from meshcache.process import StartError, UsageError

    # Envoy may be started in another folder than this was called in.
    socket_dir = (socket_dir or run_folder(DEFAULT_DATA)).absolute()
    sockets = [socket_dir / f"worker-{index}.sock" for index in range(workers)]
    try:
        timeout = _timeout(policies)
        module = None if no_wasm else wasm or _built()
        if format == "filter":
            plain = _filters(sockets, timeout, socket_dir, refresh_cluster or [], module)
        else:
            ways = refresh_cluster or []
            plain = _bootstrap(origin, listen, socket_dir, sockets, timeout, origin_timeout, ways, module)
    except (StartError, PolicyErrors, ValueError) as error:
        raise CommandError(str(error), 2 if isinstance(error, UsageError) else 1) from error
    typer.echo(to_json(plain) if json else to_yaml(plain), nl=False)


def _timeout(policies: Path | None) -> float:
    from meshcache.envoy.timeouts import message_timeout
    from meshcache.policy.compile import compile_documents
    from meshcache.policy.documents import Documents
    from meshcache.policy.sources import read_files

    documents = read_files([policies]) if policies is not None else Documents.of([("default", _PLAIN_POLICY)])
    snapshot = compile_documents(documents, generation=0, secret=b"")
    return message_timeout(snapshot.lookup_budget(), snapshot.longest_wait())


def _built() -> Path | None:
    from meshcache.cli.paths import own_name
    from meshcache.wasm import module

    found = module.find()
    what = module.fault(found)
    if found is None or what:
        typer.echo(f"meshcache: without the filter, which is {what} (try: {own_name()} wasm build)", err=True)
        return None
    return found.path


def _filters(
    sockets: Sequence[Path], timeout: float, socket_dir: Path, refresh_clusters: Sequence[str], module: Path | None
) -> dict[str, Any]:
    from meshcache.cli.options import refresh_cluster_name
    from meshcache.envoy import clusters, filters
    from meshcache.envoy.bootstrap import PIPELINED, refresh_listener, to_cluster
    from meshcache.envoy.render import to_plain

    chain = [
        filters.outer_strip(),
        *filters.cache_filters(module, message_timeout=timeout),
        filters.router(),
    ]
    parts: dict[str, Any] = {
        "http_filters": [to_plain(item) for item in chain],
        "clusters": [to_plain(clusters.sidecar_cluster(sockets))],
    }
    if module is not None:
        parts["clusters"].append(to_plain(clusters.filter_cluster(clusters.filter_socket(socket_dir))))
        parts["layered_runtime"] = to_plain(PIPELINED)
    if refresh_clusters:
        ways = {name: to_cluster(name) for name in map(refresh_cluster_name, refresh_clusters)}
        parts["listeners"] = [to_plain(refresh_listener(socket_dir / "refresh.sock", ways))]
    return parts


def _bootstrap(
    origin: str,
    listen: str,
    socket_dir: Path,
    sockets: Sequence[Path],
    timeout: float,
    origin_timeout: float,
    refresh_clusters: Sequence[str],
    module: Path | None,
) -> dict[str, Any]:
    from meshcache.cli.checks import parse_origin, parse_refresh_clusters
    from meshcache.envoy.bootstrap import BootstrapOptions, build_bootstrap
    from meshcache.envoy.clusters import ORIGIN_CLUSTER
    from meshcache.envoy.render import to_plain
    from meshcache.process import parse_address

    options = BootstrapOptions(
        listen=parse_address(listen, "--listen"),
        origin=parse_origin(origin),
        worker_sockets=tuple(sockets),
        refresh_socket=socket_dir / "refresh.sock",
        admin=socket_dir / "envoy-admin.sock",
        message_timeout=timeout,
        origin_timeout=origin_timeout,
        refresh_clusters=parse_refresh_clusters(refresh_clusters, reserved=ORIGIN_CLUSTER),
        wasm=module,
        # Whoever prints it may edit it.
        more_before=True,
    )
    return to_plain(build_bootstrap(options))
