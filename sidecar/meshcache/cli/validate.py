"""`meshcache validate`: check policy files without starting anything."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcache.cli.options import a_path

if TYPE_CHECKING:
    from meshcache.policy.documents import Documents
    from meshcache.policy.errors import PolicyError
    from meshcache.policy.snapshot import Snapshot


def validate(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            parser=a_path,
            help="Policy files, or folders of them; `-`: standard input; `policies` when none is given.",
        ),
    ] = None,
    refresh_cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Cluster that refreshes may go to, as for `serve`; may be repeated.  [default: any]",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are failures, too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check policy files: everything that is wrong, with file, line, column and field.

    All paths together are one set: references between them are resolved. Matches that no request can reach are warned
    about, and a budget of the filter in Envoy that leaves no room for answers. The exit status is 0 when all is well, 1
    for errors, and with --strict for warnings.

    Example: meshcache validate policies/
    """
    from meshcache.policy.compile import compile_documents
    from meshcache.policy.documents import parse_documents
    from meshcache.policy.errors import PolicyError, PolicyErrors
    from meshcache.policy.hints import budget_warnings, filter_keeps
    from meshcache.policy.shadows import warnings
    from meshcache.policy.sources import read_files

    given = paths or [Path("policies")]
    documents = read_files(given)
    try:
        clusters = None if refresh_cluster is None else frozenset(refresh_cluster)
        snapshot = compile_documents(documents, generation=0, secret=b"", refresh_clusters=clusters)
        if not documents.files:
            # For a running sidecar an empty folder is a set that caches nothing; here it is a wrong path.
            missing = [PolicyError(str(path), 0, 0, "", "holds no policy files (*.yaml, *.yml)") for path in given]
            raise PolicyErrors(missing)
    except PolicyErrors as refused:
        if json:
            typer.echo(
                json_module.dumps(
                    {
                        "ok": False,
                        "errors": [_plain(error) for error in refused.errors],
                        "more": refused.left_out,
                        "warnings": [],
                    },
                    indent=2,
                )
            )
        else:
            typer.echo(str(refused), err=True)
        raise typer.Exit(1) from None
    counts = _counts(documents, snapshot)
    parsed = parse_documents(documents)[0]
    warned = warnings(parsed, snapshot.routes) + budget_warnings(parsed, snapshot.config)
    failed = strict and bool(warned)
    if json:
        result = {"ok": not failed, **counts, "errors": [], "warnings": [_plain(one) for one in warned]}
        typer.echo(json_module.dumps(result, indent=2))
        raise typer.Exit(1 if failed else 0)
    for one in warned:
        typer.echo(f"warning: {one}", err=True)
    if failed:
        raise typer.Exit(1)
    typer.echo(
        f"ok: {_number(counts['documents'], 'document')} in {_number(counts['files'], 'file')}: "
        f"{_number(counts['policies'], 'policy', 'policies')}, {_number(counts['routes'], 'route')}, "
        f"{_number(counts['experiments'], 'experiment')}"
        f"{'' if filter_keeps(snapshot.config) else '; the filter in Envoy keeps nothing (budgets.filter)'}"
    )


def _counts(documents: Documents, snapshot: Snapshot) -> dict[str, int]:
    policies, routes, experiments = len(snapshot.policies), len(snapshot.routes), len(snapshot.experiments)
    configs = 1 if snapshot.config.name else 0
    return {
        "files": len(documents.files),
        "documents": configs + policies + routes + experiments,
        "policies": policies,
        "routes": routes,
        "experiments": experiments,
    }


def _plain(error: PolicyError) -> dict[str, object]:
    return {
        "file": error.file,
        "line": error.line,
        "column": error.column,
        "field": error.field,
        "message": error.message,
        "hint": error.hint,
    }


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
