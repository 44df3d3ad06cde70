"""The report of a simulation: one HTML file with everything in it.

The charts are drawn by `svg`, a hundred lines. Libraries for this bring a script or a font from elsewhere, colours that
a dark page swallows, or tens of megabytes to install.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from meshcache.simulate.rows import Row, arm_rows, policy_rows
from meshcache.simulate.svg import STYLES, Axis, Series, line_chart
from meshcache.simulate.units import shown_bytes, shown_number, shown_seconds, shown_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshcache.simulate.result import PolicyResult, SimulationResult

_LIGHT: Final = ("#0072b2", "#d55e00", "#007a5a", "#8a3b77", "#8a6d00", "#444444")
_DARK: Final = ("#56b4e9", "#ff9d5c", "#3fd2a4", "#e79fc9", "#f0e442", "#bbbbbb")
_DASHES: Final = ("none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")

_STEPS: Final = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    4 * 3600,
    12 * 3600,
    24 * 3600,
    7 * 24 * 3600,
)
"""Seconds between ticks of time."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --faint: #d8d8d8; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--faint); fill: none; } .line { fill: none; stroke-width: 2; }
circle { stroke: var(--paper); stroke-width: 1.5; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; } caption { text-align: left; font-weight: 600; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid var(--faint); text-align: right; }
th[scope=row], thead th:first-child { text-align: left; font-weight: 400; white-space: pre; }
figure { margin: 1.5rem 0; } .key { display: inline-block; margin-right: 1.2rem; } .key svg { width: 2.2rem; }
"""


def report(result: SimulationResult, settings: Sequence[tuple[str, str]]) -> str:
    """The page. `settings` are what the simulation was told, each with its name."""
    trace = result.trace
    title = f"Simulation of {trace.name}"
    bad = f" {shown_number(trace.bad_lines, 'line')} could not be read." if trace.bad_lines else ""
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_style()}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{shown_number(trace.requests, 'request')} for {shown_number(trace.objects, 'object')} in "
        f"{shown_seconds(trace.seconds)}, {shown_bytes(trace.bytes)} of bodies."
        f"{bad}</p>",
        _table("Compared", [policy.name for policy in result.policies], policy_rows(result)),
        _curve(result),
        _over_time(result.policies),
        *(_arms(policy) for policy in result.policies),
        _table("What the simulation was told", ["value"], [Row(name, [value]) for name, value in settings]),
        "</main></body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _style() -> str:
    def colours(palette: Iterable[str]) -> str:
        return " ".join(f"--series-{number}: {colour};" for number, colour in enumerate(palette))

    dark = f"--ink: #eeeeee; --paper: #16181b; --faint: #3a3d41; {colours(_DARK)}"
    rules = "\n".join(
        f".line.series-{number} {{ stroke: var(--series-{number}); stroke-dasharray: {_DASHES[number]}; }} "
        f"circle.series-{number} {{ fill: var(--series-{number}); }}"
        for number in range(STYLES)
    )
    by_scheme = f":root {{ {colours(_LIGHT)} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f"{_STYLE}{by_scheme}\n{rules}\n"


def _table(caption: str, columns: Sequence[str], rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(map(_row, rows))
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Row) -> str:
    cells = "".join(f"<td>{escape(value)}</td>" for value in row.values)
    return f'<tr><th scope="row">{escape(row.title)}</th>{cells}</tr>'


def _figure(chart: str, caption: str, series: Sequence[Series]) -> str:
    if not chart:
        return ""
    keys = "".join(f'<span class="key">{_sample(each)} {escape(each.name)}</span>' for each in series)
    return f"<figure>{chart}<figcaption>{escape(caption)}<br>{keys}</figcaption></figure>"


def _sample(series: Series) -> str:
    style = f"series-{series.style % STYLES}"
    mark = (
        f'<circle class="{style}" cx="20" cy="6" r="5"/>'
        if series.lone or len(series.points) == 1
        else f'<path class="line {style}" d="M0 6H40"/>'
    )
    return f'<svg viewBox="0 0 40 12" aria-hidden="true">{mark}</svg>'


def _curve(result: SimulationResult) -> str:
    curve = result.curve
    if not curve.capacity_bytes:
        return ""
    series = [Series("least recently used, no expiry", [*zip(curve.capacity_bytes, curve.miss_ratio, strict=True)], 0)]
    series += [
        Series(policy.name, [(policy.memory["hot"].budget, 1.0 - policy.total.hit_ratio)], number, lone=True)
        for number, policy in enumerate(result.policies, start=1)
    ]
    description = (
        f"The miss ratio falls from {shown_share(curve.miss_ratio[0])} at {shown_bytes(curve.capacity_bytes[0])} "
        f"to {shown_share(curve.miss_ratio[-1])} at {shown_bytes(curve.capacity_bytes[-1])}."
    )
    x = Axis("memory", shown_bytes, logarithmic=True, base=4.0)
    chart = line_chart("curve", "Miss ratio by capacity", description, x, Axis("miss ratio", _percent), series)
    caption = (
        "Misses of a cache in which only room decides what goes, by its size (Mattson's stack distances), and those of "
        "the policies at their budgets for memory: what lies above the line is lost to lifetimes and rules, what lies "
        "below is won by warm and cold."
    )
    return _figure(chart, caption, series)


def _over_time(policies: Sequence[PolicyResult]) -> str:
    series = []
    for number, policy in enumerate(policies, start=1):
        line = policy.over_time
        points = [
            ((place + 0.5) * line.window, hits / requests)
            for place, (requests, hits) in enumerate(zip(line.requests, line.hits, strict=True))
            if requests
        ]
        series.append(Series(policy.name, points, number))
    description = "; ".join(f"{policy.name}: {shown_share(policy.total.hit_ratio)} over all" for policy in policies)
    x = Axis("since the first request", shown_seconds, steps=_STEPS)
    chart = line_chart("time", "Hit ratio over time", description, x, Axis("hit ratio", _percent), series)
    return _figure(chart, "Hits of all requests in windows of equal length.", series)


def _arms(policy: PolicyResult) -> str:
    titles, rows = arm_rows(policy)
    return _table(f"Arms and routes: {policy.name}", titles, rows)


def _percent(value: float) -> str:
    return f"{value:.0%}"
