"""`meshcache simulate`: what policies make of recorded traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from meshcache.cli.options import a_path
from meshcache.cli.simulate_settings import MISS, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.simulate.result import SimulationResult


def simulate(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            parser=a_path,
            help="File of requests; may be packed (gzip, bzip2, xz, zstd). `-`: standard input.",
        ),
    ],
    policies: Annotated[
        list[Path] | None,
        typer.Option(
            "--policies",
            metavar="PATH",
            parser=a_path,
            help="Policy file or folder of them; may be repeated to compare sets.  [default: policies]",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Every request under this policy instead of by routes and experiments; may be repeated to compare.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="common, envoy, json, csv, tsv, oracle or keys.  [default: by what is in the file]",
            show_default=False,
        ),
    ] = "",
    host: Annotated[str, typer.Option(metavar="HOST", help="Where requests go whose line does not say.")] = "localhost",
    rate: Annotated[
        float, typer.Option(min=0.001, max=1e6, metavar="NUMBER", help="Requests a second of a trace without times.")
    ] = 100.0,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Only so many requests.  [default: all]", show_default=False),
    ] = None,
    object_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Body of what the trace gives no size for.")
    ] = "4Ki",
    origin_cache_control: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="`cache-control` of the origin's answers, where the trace has none.  [default: none]",
            show_default=False,
        ),
    ] = None,
    origin_validators: Annotated[
        bool, typer.Option(help="Whether the origin's answers have an `etag`, by their size.")
    ] = True,
    hit_latency: Annotated[
        str, typer.Option(metavar="DURATION", help="Of a hit; by tier: `hot=1ms,warm=3ms,cold=20ms`.")
    ] = "17ms",
    miss_latency: Annotated[str, typer.Option(metavar="DURATION", help="Of the origin's answers.")] = MISS,
    latency_sigma: Annotated[
        float,
        typer.Option(min=0.0, max=5.0, metavar="NUMBER", help="Latencies vary: lognormal, around these as medians."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Of what varies.")] = 1,
    hot_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Memory for entries.  [default: budgets.hot, else 256Mi]", show_default=False
        ),
    ] = "",
    warm_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Room in the warm tier.")] = "1Gi",
    cold_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Room in the cold tier.  [default: stores.cold.maxBytes, else 10Gi]",
            show_default=False,
        ),
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=a_path,
            help="Data folder of a meshcache: its secret chooses the arms.",
            show_default=False,
        ),
    ] = None,
    eviction: Annotated[
        str,
        typer.Option(metavar="NAME", help="Instead of policies: an eviction by itself (lru, ttl).", show_default=False),
    ] = "",
    capacity_objects: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="NUMBER", help="With --eviction: objects; may be repeated.", show_default=False),
    ] = None,
    capacity_bytes: Annotated[
        list[str] | None,
        typer.Option(metavar="SIZE", help="With --eviction: memory; may be repeated.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=a_path, help="Write a report with charts, too.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Replay recorded requests against policies, with the cache itself and a clock that is set: nothing is sent.

    A trace is an access log (common, combined, Envoy's, JSON lines), a table whose first line names its columns (CSV,
    TSV), libCacheSim's oracleGeneral, or one key a line.

    Example: meshcache simulate access.log --policies policies --origin-cache-control max-age=60
    """
    settings = Settings.of(
        trace,
        form=form,
        host=host,
        rate=rate,
        limit=limit,
        object_bytes=object_bytes,
        cache_control=origin_cache_control,
        validators=origin_validators,
        hit_latency=hit_latency,
        miss_latency=miss_latency,
        sigma=latency_sigma,
        seed=seed,
        hot_bytes=hot_bytes,
        warm_bytes=warm_bytes,
        cold_bytes=cold_bytes,
    )
    if eviction or capacity_objects or capacity_bytes:
        from meshcache.cli.simulate_eviction import print_eviction

        if not eviction:
            raise typer.BadParameter("goes with --eviction", param_hint=_first(_CAPACITIES, capacity_objects))
        others = (policies, policy, data, html)
        if any(others):
            raise typer.BadParameter("does not go with --eviction", param_hint=_first(_OF_POLICIES, *others))
        print_eviction(settings, eviction, capacity_objects or [], capacity_bytes or [], as_json=json)
        return
    from meshcache.cli.simulate_run import contenders, replay

    result = replay(settings, contenders(settings, policies or [Path("policies")], policy or [], data))
    # First, since a report that cannot be written shall not cost what took so long.
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        from meshcache.cli.simulate_table import print_tables

        print_tables(result)
    if html is not None:
        _write(html, result, settings)


_CAPACITIES: Final = ("--capacity-objects", "--capacity-bytes")
_OF_POLICIES: Final = ("--policies", "--policy", "--data", "--html")


def _first(options: Sequence[str], *values: object) -> str:
    """The first of `options` whose value is given; the last one where none of `values` is."""
    return next((option for option, value in zip(options, values, strict=False) if value), options[-1])


def _write(path: Path, result: SimulationResult, settings: Settings) -> None:
    from meshcache.cli.app import CommandError
    from meshcache.simulate.html import report

    try:
        path.write_text(report(result, settings.shown()), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--html {path}: {error.strerror or error}") from None
