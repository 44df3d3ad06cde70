"""The run of `meshcache simulate`: policies compiled, the trace read with a bar that shows how far, the replay."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from meshcache.cli.app import CommandError
from meshcache.extproc import wire
from meshcache.extproc.budgets import DEFAULT_COLD_BYTES, DEFAULT_HOT_BYTES, Shares
from meshcache.policy.compile import compile_documents
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.sources import read_files
from meshcache.simulate.contenders import under
from meshcache.simulate.latency import LatencyModel
from meshcache.simulate.run import Contender, OriginModel, Simulation
from meshcache.simulate.source import open_trace
from meshcache.simulate.trace import TraceError
from meshcache.simulate.world import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from meshcache.cli.simulate_settings import Settings
    from meshcache.policy.snapshot import Snapshot
    from meshcache.simulate.lines import BadLines
    from meshcache.simulate.result import SimulationResult
    from meshcache.simulate.source import Trace
    from meshcache.simulate.trace import TraceRequest

_SHOW_EVERY: Final = 2000
_YOUNG: Final = 10_000_000
"""Objects after which the collector looks for cycles: a replay makes millions of objects, and hardly any cycles."""


def contenders(settings: Settings, paths: Sequence[Path], names: Sequence[str], data: Path | None) -> list[Contender]:
    """The sets at `paths`, or of each the policies of these names. Raises `CommandError`."""
    found: list[Contender] = []
    for path in paths:
        snapshot = _compiled(path, data)
        label = f"{path}: " if len(paths) > 1 else ""
        if not names:
            found.append(Contender(str(path), snapshot, _sizes(settings, snapshot)))
        for name in names:
            policy = snapshot.policies.get(name)
            if policy is None:
                known = ", ".join(sorted(snapshot.policies)) or "none"
                raise CommandError(f"--policy {name}: {path} has no such policy (it has: {known})")
            found.append(Contender(f"{label}{name}", under(snapshot, policy), _sizes(settings, snapshot)))
    return found


def _compiled(path: Path, data: Path | None) -> Snapshot:
    from meshcache.cli.arm_secret import assignment_secret

    secret = assignment_secret(data) if data is not None else b""
    documents = read_files([path])
    try:
        snapshot = compile_documents(documents, generation=0, secret=secret)
    except PolicyErrors as refused:
        typer.echo(str(refused), err=True)
        raise CommandError(f"the policies in {path} are refused") from None
    if not snapshot.policies:
        raise CommandError(f"--policies {path}: there is no policy in it")
    return snapshot


def _sizes(settings: Settings, snapshot: Snapshot) -> Sizes:
    config = snapshot.config
    hot = settings.hot_bytes or config.hot_bytes or DEFAULT_HOT_BYTES
    cold = settings.cold_bytes or config.cold_max_bytes or DEFAULT_COLD_BYTES
    return Sizes(hot, settings.warm_bytes, cold, Shares.of(hot, 1).copies)


def replay(settings: Settings, compared: Sequence[Contender]) -> SimulationResult:
    """Read the trace once and replay it against each of `compared`. Raises `CommandError`."""
    with (
        tempfile.TemporaryDirectory(prefix="meshcache-simulate-") as folder,
        _seldom_collected(),
        Simulation(
            Path(folder),
            compared,
            origin=OriginModel(settings.cache_control, settings.validators, settings.object_bytes),
            latency=LatencyModel(settings.miss_latency, settings.hit_latency, settings.sigma, settings.seed),
            render=wire.render,
        ) as simulation,
    ):
        trace = read(settings, simulation.feed)
        result = simulation.result(settings.trace.name, trace.format, trace.bad.count, trace.bad.first)
    for policy in result.policies:
        if policy.stored.get("stored"):
            continue
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(policy.stored.items()))
        told = (
            f"nothing was stored ({reasons})"
            + ("; does the trace lack lifetimes (--origin-cache-control)?" if "no-freshness" in policy.stored else "")
            if reasons
            else "no request is cached; does none of its routes with a policy match? --host HOST says where requests "
            "go, and --policy NAME puts all of them under one policy"
        )
        typer.echo(f"meshcache: {policy.name}: {told}", err=True)
    return result


def read(settings: Settings, take: Callable[[TraceRequest], None]) -> Trace:
    """Hand each request of the trace to `take`; what was read. Raises `CommandError`."""
    count = 0
    try:
        with open_trace(settings.trace, settings.form) as trace, _progress(trace) as show:
            for request in islice(trace.requests(settings.host, settings.rate), settings.limit):
                take(request)
                count += 1
                if count % _SHOW_EVERY == 0:
                    show(count)
    except TraceError as error:
        raise CommandError(str(error)) from None
    _report(trace.bad, nothing=not count)
    return trace


def _report(bad: BadLines, *, nothing: bool) -> None:
    first = "; ".join(f"{number}: {reason}" for number, reason in bad.first)
    if nothing:
        raise CommandError(f"the trace holds no request{f' that could be read: line {first}' if first else ''}")
    if bad.count:
        lines = "line" if bad.count == 1 else "lines"
        typer.echo(f"meshcache: {bad.count:,} {lines} of the trace could not be read; line {first}", err=True)


@contextlib.contextmanager
def _progress(trace: Trace) -> Iterator[Callable[[int], None]]:
    """What shows how many requests have been read, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("reading", total=trace.size)

        def show(count: int) -> None:
            progress.update(bar, completed=trace.position(), description=f"{count:,} requests")

        yield show


@contextlib.contextmanager
def _seldom_collected() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
