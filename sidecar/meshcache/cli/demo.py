"""`meshcache demo`: what meshcache is for, shown on this machine."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from meshcache.cli.app import CommandError
from meshcache.cli.options import Workers
from meshcache.cli.paths import admin_socket

demo = typer.Typer(
    rich_markup_mode=None,
    help="Show what meshcache is for, on this machine.\n\nExample: meshcache demo ab",
)


@demo.callback()
def _root() -> None:
    """Show what meshcache is for, on this machine."""


@demo.command(short_help="Two policies against each other, then one swapped under load.")
def ab(
    seconds: Annotated[int, typer.Option(min=5, max=3600, metavar="S", help="How long both arms are measured.")] = 60,
    warmup: Annotated[
        int, typer.Option(min=1, max=600, metavar="S", help="Before that: caches fill, nothing counts.")
    ] = 20,
    after: Annotated[int, typer.Option(min=5, max=3600, metavar="S", help="How long is measured after the swap.")] = 20,
    rate: Annotated[float, typer.Option(min=1, max=2000, metavar="N", help="Requests a second, all arms.")] = 160.0,
    network_ms: Annotated[
        float, typer.Option(min=0, max=1000, metavar="MS", help="How far the clients are from Envoy.")
    ] = 16.0,
    origin_ms: Annotated[int, typer.Option(min=0, max=30_000, metavar="MS", help="Delay of the origin.")] = 166,
    workers: Workers = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the load.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run caching until expiry against LRU with stale-while-revalidate: real Envoy, a slow origin, a skewed load.

    Half of the users get the one, half the other. Afterwards the first policy's file is edited under load. Everything
    runs on this machine, on free ports, and is gone afterwards. Exit status 0 only when no request failed and the
    second policy was better in hit ratio and mean latency.

    Example: meshcache demo ab --seconds 30
    """
    from meshcache.cli.demo_text import Screen, as_values, summary
    from meshcache.demo.ab import AbOptions, run_ab
    from meshcache.demo.load import LoadOptions
    from meshcache.process import StartError

    folder = Path(tempfile.mkdtemp(prefix="meshcache-demo-"))
    options = AbOptions(
        folder=folder,
        admin_socket=admin_socket(folder / "data"),
        workers=workers,
        warmup=warmup,
        seconds=seconds,
        after=after,
        origin_ms=origin_ms,
        load=LoadOptions(rate=rate, network=network_ms / 1000, seed=seed),
    )
    try:
        with Screen(quiet=as_json) as screen:
            result = asyncio.run(run_ab(options, screen.show))
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise typer.Exit(130) from None
    except (StartError, OSError) as error:
        # The log stays: it says why.
        raise CommandError(str(error)) from error
    shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        json.dump(as_values(options, result), sys.stdout)
        sys.stdout.write("\n")
    else:
        typer.echo(summary(options, result))
    if result.failed or not result.better:
        raise typer.Exit(1)
