"""How `meshcache demo ab` shows its numbers."""

from __future__ import annotations

import sys
import time
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from meshcache.demo.ab_policies import CANDIDATE, CONTROL

if TYPE_CHECKING:
    from types import TracebackType

    from meshcache.demo.ab import AbOptions, AbResult, Progress
    from meshcache.demo.load import Tally

LINE_EVERY: Final = 10.0
"""Seconds between lines where there is no terminal to draw on."""
LATE: Final = 0.25
"""Seconds; a load that is later than that does not get the machine it needs."""


def _number(value: float, factor: float, unit: str, digits: int) -> str:
    return f"{value * factor:.{digits}f} {unit}" if isfinite(value) else "-"


def _cells(tally: Tally) -> list[str]:
    half, most = tally.quantiles(0.5, 0.95)
    return [
        str(tally.requests),
        _number(tally.hit_ratio, 100, "%", 1),
        str(tally.origin),
        _number(tally.mean, 1000, "ms", 1),
        _number(half, 1000, "ms", 1),
        _number(most, 1000, "ms", 1),
    ]


_TITLES: Final = ("requests", "hit ratio", "waited for origin", "mean", "p50", "p95")


def _table(title: str, tallies: dict[str, Tally]) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", header_style="bold", title_style="")
    table.add_column("policy", no_wrap=True)
    for name in _TITLES:
        table.add_column(name, justify="right", no_wrap=True)
    for arm in (CONTROL, CANDIDATE):
        if arm in tallies:
            table.add_row(arm, *_cells(tallies[arm]))
    return table


def verdict(experiment: dict[str, Any]) -> str:
    """What the experiment's own statistics say of the primary metric; empty before they say anything."""
    for estimate in experiment.get("estimates", []):
        if estimate["role"] == "primary" and estimate["change"] is not None:
            ends = (estimate["low"], estimate["high"])
            low, high = ("no bound" if end is None else f"{end * 100:+.1f}" for end in ends)
            sure = experiment["confidence"] * 100
            change = f"{estimate['metric']} {estimate['change'] * 100:+.1f} points"
            return f"{change} ({low} to {high} at {sure:g} %): {estimate['state']}"
    return ""


class Screen:
    """The numbers while it runs: a table on a terminal, else a line now and then on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True)
            if not quiet and self._console.is_terminal
            else None
        )
        self._quiet = quiet
        self._next = 0.0
        self._stage = ""

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show where it stands."""
        title = f"{progress.stage}, {progress.left:.0f} s left"
        if self._live is not None:
            table = _table(title, progress.tallies)
            said = verdict(progress.experiment)
            late = (
                f"; the load is {progress.lateness:.1f} s late: this machine is too busy"
                if progress.lateness > LATE
                else ""
            )
            table.caption = f"{said or 'no verdict yet'}; failed requests: {progress.failed}{late}"
            table.caption_justify = "left"
            self._live.update(table, refresh=True)
        elif not self._quiet and (progress.stage != self._stage or time.monotonic() >= self._next):
            self._stage = progress.stage
            self._next = time.monotonic() + LINE_EVERY
            parts = [
                f"{arm} {_number(tally.hit_ratio, 100, '%', 1)} hits, mean {_number(tally.mean, 1000, 'ms', 1)}"
                for arm, tally in sorted(progress.tallies.items(), reverse=True)
                if arm
            ]
            sys.stderr.write("; ".join((title, *parts)) + "\n")


def summary(options: AbOptions, result: AbResult) -> str:
    """The result in words."""
    load = options.load
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        console.print(
            f"{load.rate:g} requests a second by {load.users} users for {load.keys} pictures (zipf {load.exponent:g}); "
            f"clients {load.network * 1000:g} ms away, origin {options.origin_ms} ms\n",
            soft_wrap=True,
        )
        console.print(_table(f"{CONTROL} against {CANDIDATE}, {options.seconds} s", result.before))
        said = verdict(result.experiment)
        if said:
            console.print(f"the experiment's own statistics: {said}", soft_wrap=True)
        console.print()
        console.print(
            _table(f"{CONTROL} edited to serve stale as well, {options.after} s after the swap", result.after)
        )
        console.print(
            f"in effect in every worker {result.swap_seconds * 1000:.0f} ms after the file was saved; "
            f"{result.failed} of {result.sent} requests failed"
            + (f" ({result.failures[0]})" if result.failures else ""),
            soft_wrap=True,
        )
        if not result.better:
            console.print(f"{CANDIDATE} was not better this time: try a longer --seconds, or a less busy machine")
    return capture.get().rstrip()


def as_values(options: AbOptions, result: AbResult) -> dict[str, Any]:
    """The result for programs: ratios as fractions, times in milliseconds; null where nothing was measured."""

    def arm(tally: Tally) -> dict[str, Any]:
        half, most = tally.quantiles(0.5, 0.95)
        values = {
            "hitRatio": tally.hit_ratio,
            "latencyMeanMs": tally.mean * 1000,
            "latencyP50Ms": half * 1000,
            "latencyP95Ms": most * 1000,
        }
        told = {name: round(value, 4) if isfinite(value) else None for name, value in values.items()}
        return {"requests": tally.requests, "hits": tally.hits, "waitedForOrigin": tally.origin, **told}

    return {
        "arms": {name: arm(tally) for name, tally in result.before.items() if name},
        "afterSwap": {name: arm(tally) for name, tally in result.after.items() if name},
        "swapMs": round(result.swap_seconds * 1000, 1),
        "seconds": options.seconds,
        "requests": result.sent,
        "failed": result.failed,
        "candidateBetter": result.better,
        "estimates": result.experiment.get("estimates", []),
    }
