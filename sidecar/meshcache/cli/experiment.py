"""`meshcache experiment`: what is compared, how it stands, and what a person decides about it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import quote

import typer

from meshcache.cli.app import CommandError
from meshcache.cli.paths import DEFAULT_DATA

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from meshcache.experiment.orders import Order
    from meshcache.extproc.experiment_views import ExperimentView

TIMEOUT: Final = 20.0
"""Seconds; the first look at an experiment loads what works out its numbers."""
WATCH_EVERY: Final = 2.0

experiment = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show experiments, and decide about them.\n\nExample: meshcache experiment show swr-rollout --watch",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the CacheExperiment.")]
Data = Annotated[Path, typer.Option(metavar="DIR", help="Data folder of the running meshcache.")]
Socket = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Its admin socket.  [default: <data>/run/admin.sock]", show_default=False),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with its token.  [default: <data>/admin.token]", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Watch = Annotated[bool, typer.Option("--watch", help="Print it anew every 2 seconds, until interrupted.")]
ReasonText = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with the decision.")]

T = TypeVar("T")


@experiment.command("list", short_help="List the experiments in force.")
def list_all(data: Data = DEFAULT_DATA, socket: Socket = None, as_json: Json = False, watch: Watch = False) -> None:
    """List the experiments in force: phase, stage, shares, and the newest decision.

    Example: meshcache experiment list
    """
    from meshcache.cli.experiment_text import told_list
    from meshcache.extproc.experiment_views import ExperimentList

    admin = _Admin(data, socket)
    _shown(lambda: admin.get("/experiments", ExperimentList), told_list, as_json=as_json, watch=watch)


@experiment.command(short_help="Show one: numbers, guardrails, decisions.")
def show(
    name: Name, data: Data = DEFAULT_DATA, socket: Socket = None, as_json: Json = False, watch: Watch = False
) -> None:
    """Show one experiment: arms and their numbers, differences, guardrails, decisions, what a verdict waits for.

    Example: meshcache experiment show swr-rollout --watch
    """
    from meshcache.cli.experiment_text import told
    from meshcache.extproc.experiment_views import ExperimentView

    admin = _Admin(data, socket)
    path = f"/experiments/{quote(name, safe='')}"
    _shown(lambda: admin.get(path, ExperimentView), told, as_json=as_json, watch=watch)


@experiment.command(short_help="Everybody on control; forced requests stay.")
def stop(
    name: Name,
    reason: ReasonText = "",
    data: Data = DEFAULT_DATA,
    socket: Socket = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End it: everybody is on control. Requests that force an arm still get it.

    Example: meshcache experiment stop swr-rollout --reason "the holidays begin"
    """
    _order("stop", name, reason, data, socket, token_file, as_json=as_json)


@experiment.command(short_help="Go on, with a warm-up and counts begun anew.")
def resume(
    name: Name,
    reason: ReasonText = "",
    data: Data = DEFAULT_DATA,
    socket: Socket = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Go on: with the stage in which it was paused, else from the first; with a warm-up, and counts begun anew.

    Example: meshcache experiment resume swr-rollout --reason "the origin was at fault"
    """
    _order("resume", name, reason, data, socket, token_file, as_json=as_json)


@experiment.command(short_help="Everybody on the candidate, with its cache.")
def promote(
    name: Name,
    arm: Annotated[str, typer.Option(metavar="ARM", help="Whom, where nothing is compared.")] = "",
    reason: ReasonText = "",
    data: Data = DEFAULT_DATA,
    socket: Socket = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Put everybody on the candidate, which keeps its filled cache.

    Example: meshcache experiment promote swr-rollout --reason "good enough"
    """
    _order("promote", name, reason, data, socket, token_file, arm=arm, as_json=as_json)


@experiment.command(short_help="Everybody on control, forced requests too.")
def rollback(
    name: Name,
    reason: ReasonText = "",
    data: Data = DEFAULT_DATA,
    socket: Socket = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Put everybody on control, in every worker and pod within 2 seconds, requests that force an arm too.

    It holds until somebody resumes it, or until its file or a policy of its arms says something else.

    Example: meshcache experiment rollback swr-rollout --reason "complaints"
    """
    _order("rollback", name, reason, data, socket, token_file, as_json=as_json)


@experiment.command(short_help="Test whether a split of units is the planned one.")
def srm(
    first: Annotated[int, typer.Argument(min=0, metavar="UNITS", help="Units seen in one arm.")],
    second: Annotated[int, typer.Argument(min=0, metavar="UNITS", help="Units seen in the other.")],
    weights: Annotated[
        tuple[float, float], typer.Option(metavar="FIRST SECOND", help="Weights that they were planned with.")
    ] = (50, 50),
    as_json: Json = False,
) -> None:
    """Test whether two arms have the units that their weights promise: chi-square at 1 %, for a single look.

    Example: meshcache experiment srm 44700 45489 --weights 50 50 --json
    """
    import json

    from meshcache.experiment.statistics.sample_ratio import srm_fixed

    try:
        found = srm_fixed((first, second), weights)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--weights") from None
    if as_json:
        typer.echo(json.dumps({"pValue": found.p_value, "flagged": found.flagged}))
        return
    verdict = "flagged: the split is not the planned one" if found.flagged else "the split is as planned"
    typer.echo(f"p = {found.p_value:.4g}  {verdict}")


def _order(
    order: str,
    name: str,
    reason: str,
    data: Path,
    socket: Path | None,
    token_file: Path | None,
    *,
    arm: str = "",
    as_json: bool,
) -> None:
    import msgspec

    from meshcache.cli.experiment_text import told_line
    from meshcache.experiment.orders import Order

    found = _Admin(data, socket, token_file).order(name, Order(order), reason, arm)
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


class _Admin:
    """The admin API of a running meshcache."""

    def __init__(self, data: Path, socket: Path | None, token_file: Path | None = None) -> None:
        from meshcache.admin.token import FILE_NAME
        from meshcache.cli.paths import admin_socket

        self._socket = socket or admin_socket(data)
        self._token_file = token_file or data / FILE_NAME

    def get(self, path: str, kind: type[T]) -> T:
        """What is there. Raises `CommandError`."""
        return self._answer(lambda client: client.get(path), kind)

    def order(self, name: str, order: Order, reason: str, arm: str) -> ExperimentView:
        """Carry it out. Raises `CommandError`."""
        from meshcache.admin.token import Token, TokenError
        from meshcache.extproc.experiment_views import ExperimentView

        def send(client: httpx.Client) -> httpx.Response:
            # The socket first: without a meshcache there is no token either.
            client.get("/status").raise_for_status()
            try:
                headers = Token.load(self._token_file).header
            except TokenError as error:
                raise CommandError(f"no token for this meshcache: {error}") from error
            body: dict[str, Any] = {"reason": reason, "arm": arm}
            return client.post(f"/experiments/{quote(name, safe='')}/{order}", json=body, headers=headers)

        return self._answer(send, ExperimentView)

    def _answer(self, send: Callable[[httpx.Client], httpx.Response], kind: type[T]) -> T:
        import httpx
        import msgspec

        transport = httpx.HTTPTransport(uds=str(self._socket))
        try:
            with httpx.Client(transport=transport, base_url="http://meshcache", timeout=TIMEOUT) as client:
                answer = send(client)
        except httpx.TimeoutException:
            raise CommandError(f"{self._socket} did not answer within {TIMEOUT:g} s") from None
        except (httpx.HTTPError, OSError):
            reason = f"no meshcache answers on {self._socket}: give its --data or --socket"
            raise CommandError(reason) from None
        if answer.status_code != 200:
            raise CommandError(_reason(answer))
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as error:
            raise CommandError(f"meshcache answered what this release does not understand: {error}") from error


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"meshcache answered {answer.status_code}: {answer.text[:200]}"
