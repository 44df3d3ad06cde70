"""The result of `meshcache simulate` on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from meshcache.simulate.rows import arm_rows, policy_rows
from meshcache.simulate.units import shown_bytes, shown_number, shown_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.simulate.result import SimulationResult
    from meshcache.simulate.rows import Row


_WIDTH: Final = 1000
"""Columns: a table takes what it needs. On what is narrower lines are broken, but no figure is cut short."""


def print_tables(result: SimulationResult) -> None:
    """Print what was replayed, the policies side by side, and their arms."""
    console = Console(highlight=False, width=_WIDTH)
    trace = result.trace
    console.print(
        escape(
            f"{trace.name} ({trace.format}): {shown_number(trace.requests, 'request')} for "
            f"{shown_number(trace.objects, 'object')} in {shown_seconds(trace.seconds)}, {shown_bytes(trace.bytes)}"
        )
    )
    console.print(_table("", [policy.name for policy in result.policies], policy_rows(result)))
    for policy in result.policies:
        titles, rows = arm_rows(policy)
        if rows:
            console.print(_table(policy.name, titles, rows))


def _table(first: str, titles: Sequence[str], rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(escape(first), no_wrap=True)
    for title in titles:
        table.add_column(escape(title), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(escape(row.title), *map(escape, row.values))
    return table
