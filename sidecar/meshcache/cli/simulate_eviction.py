"""`meshcache simulate --eviction`: one eviction by itself, without policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, get_args

import typer

from meshcache.cli.simulate_run import read
from meshcache.cli.simulate_settings import size
from meshcache.policy.compiled import Eviction
from meshcache.simulate.eviction import Evicting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.cli.simulate_settings import Settings
    from meshcache.simulate.trace import TraceRequest


def print_eviction(
    settings: Settings, name: str, objects: Sequence[int], memory: Sequence[str], *, as_json: bool
) -> None:
    """Print the miss ratio for each capacity: of `objects`, or of `memory` in bytes."""
    known: tuple[Eviction, ...] = get_args(Eviction)
    eviction = next((each for each in known if each == name), None)
    if eviction is None:
        raise typer.BadParameter(f"expected one of {', '.join(known)}, got {name!r}", param_hint="--eviction")
    if bool(objects) == bool(memory):
        message = "give either --capacity-objects or --capacity-bytes"
        raise typer.BadParameter(message, param_hint="--eviction")
    capacities = list(objects) or [size(text, "--capacity-bytes") for text in memory]
    unit = "objects" if objects else "bytes"
    evicting = Evicting(eviction, capacities, by_objects=bool(objects))

    def take(asked: TraceRequest) -> None:
        length = asked.size if asked.size >= 0 else settings.object_bytes
        evicting.ask(f"{asked.host}{asked.path}".encode("utf-8", "surrogatepass"), length)

    read(settings, take)

    ratios = zip(capacities, evicting.miss_ratios, strict=True)
    found = [(capacity, {"requests": evicting.requests, "missRatio": ratio}) for capacity, ratio in ratios]
    if as_json:
        rows = [{f"capacity{unit.capitalize()}": capacity, **row} for capacity, row in found]
        typer.echo(json.dumps(found[0][1] if len(found) == 1 else rows))
        return
    typer.echo(f"{evicting.requests:,} requests")
    for capacity, row in found:
        typer.echo(f"{capacity:>15,} {unit}  {row['missRatio']:.4f} missed")
