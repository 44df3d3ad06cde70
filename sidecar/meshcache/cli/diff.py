"""`meshcache diff`: what an edit of the policies changes, and for which traffic."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcache.cli.options import a_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshcache.policy.compile import PolicySet
    from meshcache.policy.diff import Difference, DocumentChange

_MOST_TRAFFIC = 20
"""Requests that are listed for people; `--json` has them all."""


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", parser=a_path, help="Policy files before: a folder or a file.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", parser=a_path, help="Policy files after.")],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say what changes from OLD to NEW: fields, the routes and arms that they reach, and what that does to traffic.

    How a thing is written does not matter: 60s and 1m are the same. For each request that a match names, the route
    before and after is told where it is another one. The exit status is that of diff: 0 when nothing changes, 1 when
    something does, 2 when it cannot be said, because one of the two is refused.

    Example: meshcache diff /tmp/before/policies policies, after `git worktree add /tmp/before HEAD`
    """
    from meshcache.policy.diff import difference

    found = difference(_read(old, "OLD"), _read(new, "NEW"))
    if json:
        result = {"same": found.same, **asdict(found)}
        typer.echo(json_module.dumps(result, indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(_lines(found)) if not found.same else "nothing changes")
        for warning in found.warnings:
            typer.echo(f"warning: {warning}", err=True)
    raise typer.Exit(0 if found.same else 1)


def _read(path: Path, which: str) -> PolicySet:
    from meshcache.cli.app import CommandError
    from meshcache.policy.compile import compile_set
    from meshcache.policy.errors import PolicyErrors
    from meshcache.policy.sources import read_files

    documents = read_files([path])
    if not documents.files and not documents.problems and not path.is_dir():
        raise CommandError(f"{which}: {path} holds no policy files (*.yaml, *.yml)", 2)
    try:
        return compile_set(documents)
    except PolicyErrors as refused:
        typer.echo(str(refused), err=True)
        raise CommandError(f"{which}: the policies in {path} are refused", 2) from None


def _lines(found: Difference) -> Iterator[str]:
    for change in found.changes:
        yield from _document(change)
    if found.traffic:
        yield "traffic"
        for one in found.traffic[:_MOST_TRAFFIC]:
            with_headers = "".join(f", {header}" for header in one.headers)
            old, new = (
                f"{route or 'no route'} ({policy or 'not cached'})"
                for route, policy in ((one.old_route, one.old_policy), (one.new_route, one.new_policy))
            )
            yield f"  {one.method} {one.url}{with_headers}: {old} -> {new}"
        left = len(found.traffic) - _MOST_TRAFFIC
        if left > 0:
            yield f"  and {left} more (--json lists them)"


def _document(change: DocumentChange) -> Iterator[str]:
    yield f"{change.kind} {change.name} {change.happened} ({change.file}:{change.line})"
    for field in change.fields:
        old, new = (value if value is not None else "none" for value in (field.old, field.new))
        at = f" ({'inherited, ' if field.inherited else ''}{field.file}:{field.line})"
        yield f"  {field.field}: {old} -> {new}{at}"
    if change.used_by:
        yield f"  used by {', '.join(change.used_by)}"
    for consequence in change.consequences:
        yield f"  => {consequence.text}"
