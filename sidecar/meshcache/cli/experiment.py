"""`meshcache experiment`: what is compared, how it stands, and what a person decides about it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from urllib.parse import quote

import typer

from meshcache.cli.admin_api import AdminApi, decoded, error_of
from meshcache.cli.app import CommandError
from meshcache.cli.options import AdminSocket, ResultAsJson, RunningData, TokenFile, in_utf8
from meshcache.cli.paths import DEFAULT_DATA

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx


TIMEOUT: Final = 20.0
"""Seconds; the first look at an experiment loads what works out its numbers."""
WATCH_EVERY: Final = 2.0
_MOST_UNITS: Final = 10**15
"""More than there can be, and few enough to be counted with."""

experiment = typer.Typer(
    rich_markup_mode=None,
    help="Show experiments, and decide about them.\n\nExample: meshcache experiment show swr-rollout --watch",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the CacheExperiment.")]
Watch = Annotated[bool, typer.Option("--watch", help="Print it anew every 2 seconds, until interrupted.")]
ReasonText = Annotated[
    str, typer.Option("--reason", metavar="TEXT", callback=in_utf8, help="Why; kept with the decision.")
]

T = TypeVar("T")


@experiment.command("list", short_help="List the experiments in force.")
def list_all(
    data: RunningData = DEFAULT_DATA, socket: AdminSocket = None, as_json: ResultAsJson = False, watch: Watch = False
) -> None:
    """List the experiments in force: phase, stage, shares, and the newest decision.

    Example: meshcache experiment list
    """
    from meshcache.cli.experiment_text import told_list
    from meshcache.extproc.experiment_views import ExperimentList

    admin = AdminApi(data, socket)
    _shown(lambda: _get(admin, "/experiments", ExperimentList), told_list, as_json=as_json, watch=watch)


@experiment.command(short_help="Show one: numbers, guardrails, decisions.")
def show(
    name: Name,
    data: RunningData = DEFAULT_DATA,
    socket: AdminSocket = None,
    as_json: ResultAsJson = False,
    watch: Watch = False,
) -> None:
    """Show one experiment: arms and their numbers, differences, guardrails, decisions, what a verdict waits for.

    Example: meshcache experiment show swr-rollout --watch
    """
    from meshcache.cli.experiment_text import told
    from meshcache.extproc.experiment_views import ExperimentView

    admin = AdminApi(data, socket)
    _shown(lambda: _get(admin, _path(name), ExperimentView), told, as_json=as_json, watch=watch)


def _add_order(order: str, short_help: str, told: str) -> None:
    """The command of an order that needs nothing but a name."""

    def carry_out(
        name: Name,
        reason: ReasonText = "",
        data: RunningData = DEFAULT_DATA,
        socket: AdminSocket = None,
        token_file: TokenFile = None,
        as_json: ResultAsJson = False,
    ) -> None:
        _order(AdminApi(data, socket, token_file), order, name, reason, as_json=as_json)

    carry_out.__doc__ = told
    experiment.command(order, short_help=short_help)(carry_out)


_add_order(
    "stop",
    "Everybody on control; forced requests stay.",
    """End it: everybody is on control. Requests that force an arm still get it.

    Example: meshcache experiment stop swr-rollout --reason "the holidays begin"
    """,
)
_add_order(
    "resume",
    "Go on, with a warm-up and counts begun anew.",
    """Go on: with the stage in which it was paused, else from the first; with a warm-up, and counts begun anew.

    Example: meshcache experiment resume swr-rollout --reason "the origin was at fault"
    """,
)


@experiment.command(short_help="Everybody on the candidate, with its cache.")
def promote(
    name: Name,
    arm: Annotated[
        str,
        typer.Option(
            metavar="ARM", callback=in_utf8, help="Instead of the candidate; needed where nothing is compared."
        ),
    ] = "",
    reason: ReasonText = "",
    data: RunningData = DEFAULT_DATA,
    socket: AdminSocket = None,
    token_file: TokenFile = None,
    as_json: ResultAsJson = False,
) -> None:
    """Put everybody on the candidate, which keeps its filled cache.

    Example: meshcache experiment promote swr-rollout --reason "good enough"
    """
    _order(AdminApi(data, socket, token_file), "promote", name, reason, arm, as_json=as_json)


_add_order(
    "rollback",
    "Everybody on control, forced requests too.",
    """Put everybody on control, in every worker and pod within 2 seconds, requests that force an arm too.

    It holds until somebody resumes it, or until its file or a policy of its arms says something else.

    Example: meshcache experiment rollback swr-rollout --reason "complaints"
    """,
)


@experiment.command(short_help="Test whether a split of units is the planned one.")
def srm(
    first: Annotated[int, typer.Argument(min=0, metavar="UNITS", help="Units seen in one arm.")],
    second: Annotated[int, typer.Argument(min=0, metavar="UNITS", help="Units seen in the other.")],
    weights: Annotated[
        tuple[float, float], typer.Option(metavar="FIRST SECOND", help="Weights that they were planned with.")
    ] = (50, 50),
    as_json: ResultAsJson = False,
) -> None:
    """Test whether two arms have the units that their weights promise: chi-square at 1 %, for a single look.

    Exit status 0 whichever it finds: what it finds is the result.

    Example: meshcache experiment srm 44700 45489 --weights 50 50 --json
    """
    import json

    from meshcache.experiment.statistics.sample_ratio import srm_fixed

    if not first + second:
        raise typer.BadParameter("there is nothing to test without a unit in either arm", param_hint="UNITS")
    if max(first, second) > _MOST_UNITS:
        raise typer.BadParameter(f"expected at most {_MOST_UNITS} units", param_hint="UNITS")
    try:
        found = srm_fixed((first, second), weights)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--weights") from None
    if as_json:
        typer.echo(json.dumps({"pValue": found.p_value, "flagged": found.flagged}))
    else:
        verdict = "flagged: the split is not the planned one" if found.flagged else "the split is as planned"
        typer.echo(f"p = {found.p_value:.4g}  {verdict}")


def _order(admin: AdminApi, order: str, name: str, reason: str, arm: str = "", *, as_json: bool) -> None:
    import msgspec

    from meshcache.cli.experiment_text import told_line
    from meshcache.extproc.experiment_views import ExperimentView

    path = _path(name)
    with admin.client(TIMEOUT) as client:
        client.get("/status").raise_for_status()
        body = {"reason": reason, "arm": arm}
        answer = client.post(f"{path}/{order}", json=body, headers=admin.credentials())
    found = _answered(answer, ExperimentView)
    typer.echo(msgspec.json.encode(found).decode() if as_json else told_line(found))


def _shown(ask: Callable[[], T], told: Callable[[T], str], *, as_json: bool, watch: bool) -> None:
    import msgspec

    try:
        while True:
            found = ask()
            if watch and not as_json and sys.stdout.isatty():
                typer.echo("\x1b[H\x1b[2J", nl=False)
            typer.echo(msgspec.json.encode(found).decode() if as_json else told(found))
            if not watch:
                return
            time.sleep(WATCH_EVERY)
    except KeyboardInterrupt:
        return


def _get(admin: AdminApi, path: str, kind: type[T]) -> T:
    with admin.client(TIMEOUT) as client:
        answer = client.get(path)
    return _answered(answer, kind)


def _answered(answer: httpx.Response, kind: type[T]) -> T:
    if answer.status_code != 200:
        raise CommandError(error_of(answer) or f"meshcache answered {answer.status_code}: {answer.text[:200]}")
    return decoded(answer.content, kind)


def _path(name: str) -> str:
    from meshcache.policy.values import name as checked

    try:
        checked(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None
    return f"/experiments/{quote(name, safe='')}"
