"""`meshcache wasm`: the filter that answers from Envoy's own memory, as a file."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcache.cli.app import CommandError
from meshcache.cli.options import DEFAULT_METRICS_LISTEN, ResultAsJson, a_path
from meshcache.cli.paths import own_name

if TYPE_CHECKING:
    import socket

    from meshcache.wasm.module import Module

wasm = typer.Typer(
    rich_markup_mode=None,
    help="Build the filter for Envoy, say where it is, or hand it out.\n\nExample: meshcache wasm path --json",
)


@wasm.command(short_help="Say where the built filter is.")
def path(as_json: ResultAsJson = False) -> None:
    """Print the path of the filter that comes with meshcache; as JSON with its version, length and SHA-256.

    Fails for what is none. One that is older than its sources gets a line on stderr.

    Example: meshcache wasm path --json
    """
    _print(_own(), as_json)


@wasm.command(short_help="Compile it from its sources.")
def build(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=a_path,
            help="Where to; its folder must be there.  [default: where the running meshcache looks for it]",
            show_default=False,
        ),
    ] = None,
    if_changed: Annotated[
        bool, typer.Option("--if-changed", help="Do nothing when it is there and its sources are the same.")
    ] = False,
    as_json: ResultAsJson = False,
) -> None:
    """Compile the filter with the Zig compiler of the `ziglang` package, and print where it is.

    The same sources give the same bytes.

    Example: meshcache wasm build --out meshcache.wasm
    """
    from meshcache.wasm import building, module

    target = out or module.MODULE
    try:
        if not (if_changed and building.is_current(target, module.sources())):
            building.build(module.sources(), target)
        found = module.find(target)
    except building.BuildError as error:
        typer.echo(error.output, err=True, nl=False)
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename or target}: {error.strerror}") from error
    if found is not None:
        _print(found, as_json)


@wasm.command(short_help="Hand it out over HTTP.")
def serve(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where; port 0: any.")] = DEFAULT_METRICS_LISTEN,
) -> None:
    """Answer GET /wasm/meshcache.wasm with the filter, for the proxies of a mesh, until stopped.

    Example: meshcache wasm serve --listen 0.0.0.0:9464
    """
    from meshcache.process import StartError, UsageError, bind_tcp, parse_address

    found = _own()
    try:
        bound = bind_tcp(*parse_address(listen, "--listen"), "--listen")
    except StartError as error:
        raise CommandError(str(error), 2 if isinstance(error, UsageError) else 1) from error
    asyncio.run(_serve(found, bound))


async def _serve(found: Module, bound: socket.socket) -> None:
    """Until SIGTERM or SIGINT."""
    from meshcache.admin.app import module_app
    from meshcache.admin.server import EmbeddedServer

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = EmbeddedServer(module_app(found), bound)
    await server.start()
    host, port = bound.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    typer.echo(f"the filter is on http://{address}/wasm/meshcache.wasm")
    await stop.wait()
    await server.stop()


def _own() -> Module:
    """The filter that comes with meshcache. Raises `CommandError` when there is none that Envoy could load."""
    from meshcache.wasm import module

    try:
        found = module.find()
    except OSError as error:
        raise CommandError(f"{error.filename or module.MODULE}: {error.strerror}") from error
    what, advice = module.fault(found), f"try: {own_name()} wasm build"
    if found is None or what:
        where = "" if found is None else f" ({found.path})"
        raise CommandError(f"the filter is {what}{where}; {advice}")
    if not found.current:
        typer.echo(f"meshcache: the filter is older than its sources; {advice}", err=True)
    return found


def _print(found: Module, as_json: bool) -> None:
    if as_json:
        told = {
            "path": str(found.path),
            "version": found.version,
            "bytes": len(found.content),
            "sha256": found.sha256,
            "current": found.current,
        }
        typer.echo(json.dumps(told))
    else:
        typer.echo(found.path)
