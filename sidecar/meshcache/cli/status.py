"""`meshcache status`: what the running sidecar says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcache.cli.app import CommandError
from meshcache.cli.options import a_path
from meshcache.cli.paths import DEFAULT_DATA

if TYPE_CHECKING:
    from meshcache.extproc.status import ExperimentStatus, FilterStatus, Status

TIMEOUT = 5.0


def status(
    data: Annotated[
        Path, typer.Option(metavar="DIR", parser=a_path, help="Data folder of the running meshcache.")
    ] = DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show policies, workers and tiers of the running meshcache; exit status 0 only when all is well.

    Example: meshcache status --data .meshcache --json
    """
    body = _ask(data)
    found = _understood(body, data)
    typer.echo(body.decode() if as_json else _readable(found))
    if not found.well:
        raise typer.Exit(1)


def status_of(data: Path) -> Status:
    """The status of the meshcache that runs with the data folder `data`. Raises `CommandError`."""
    return _understood(_ask(data), data)


def _understood(body: bytes, data: Path) -> Status:
    import msgspec

    from meshcache.extproc.status import Status

    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError as error:
        raise CommandError(f"the sidecar of {data} answered what this release does not understand: {error}") from error


def _ask(data: Path) -> bytes:
    import httpx

    from meshcache.cli.paths import admin_socket

    path = admin_socket(data)
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=TIMEOUT) as client:
            answer = client.get("http://meshcache/status")
            answer.raise_for_status()
            return answer.content
    except httpx.HTTPStatusError as error:
        reason = f"the sidecar of {data} answered {error.response.status_code}"
    except httpx.TimeoutException:
        reason = f"the sidecar of {data} did not answer within {TIMEOUT:g} s"
    except (httpx.HTTPError, OSError):
        reason = (
            f"no meshcache is running with the data folder {data}: start it with `meshcache up`, or give its --data"
        )
    raise CommandError(reason)


def _experiment(one: ExperimentStatus) -> str:
    """Its phase and the arms' shares in force."""
    whole = sum(one.weights)
    shares = ", ".join(f"{arm} {weight / whole * 100:.4g}%" for arm, weight in zip(one.arms, one.weights, strict=True))
    overlay = one.overlay
    if overlay is None:
        return f"{one.name}  nothing decided  {shares}"
    winner = f" {overlay.winner}" if overlay.winner else ""
    counted = "counting" if overlay.counting else "not counting"
    return f"{one.name}  {overlay.phase}{winner}  {shares}  epoch {overlay.epoch}  {counted}"


def _filter(one: FilterStatus) -> str:
    """A filter in Envoy, and whether it may answer."""
    if not one.living:
        state = "gone"
    elif not one.plan:
        state = "passive"
    else:
        state = "ok" if one.keeps else "keeps nothing (budgets.filter)"
    version = f"  version {one.version}" if one.version else ""
    return (
        f"filter {one.name}  {state}  generation {one.generation}  entries {one.entries}  bytes {one.bytes}"
        f"  silent {one.silent:.1f} s{version}"
    )


def _readable(status: Status) -> str:
    policies = status.policies
    state = "draining" if status.draining else "ready" if status.ready else "not ready"
    lines = [
        f"meshcache {status.version}  {state}  pid {status.pid}",
        f"metrics   http://{status.metrics_address}/metrics",
        f"policies  generation {policies.generation}  digest {policies.digest[:12]}  from {policies.source}"
        + ("  (kept from before; the folder's own are refused)" if policies.from_last_good else ""),
        f"          policies: {', '.join(policies.policies) or 'none'}",
        f"          routes: {', '.join(policies.routes) or 'none'}",
        f"          experiments: {', '.join(policies.experiments) or 'none'}",
    ]
    lines += [f"experiment {_experiment(one)}" for one in status.experiments]
    if policies.refusal is not None:
        lines.append("refused   the folder as it is now; the last good set serves")
        lines += [f"          {error}" for error in policies.refusal.errors]
    lines += [
        f"worker {worker.index}  {'ready' if worker.ready else 'not ready'}  pid {worker.pid or '-'}"
        f"  generation {worker.generation}  restarts {worker.restarts}"
        for worker in status.workers
    ]
    lines += [
        f"tier {tier.name:<5}{'breaker open' if tier.breaker_open else 'ok'}  errors {tier.errors:g}  {tier.store}"
        for tier in status.tiers
    ]
    lines += [_filter(one) for one in status.filters]
    purges = status.purges
    owed = f"  {purges.owed} owed to other pods" if purges.owed else ""
    away = "" if purges.following else "  those of other pods do not come in"
    lines.append(f"purges    {purges.rules} kept  this pod is {purges.pod}{owed}{away}")
    lines += [f"condition {item.type} is false: {item.message}" for item in status.conditions if not item.status]
    return "\n".join(lines)
