"""`meshcache purge`: declare stored answers dead or stale, in every worker and pod."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from meshcache.cli.admin_api import AdminApi, decoded, error_of
from meshcache.cli.app import CommandError
from meshcache.cli.options import AdminSocket, ResultAsJson, RunningData, TokenFile, in_utf8
from meshcache.cli.paths import DEFAULT_DATA

if TYPE_CHECKING:
    import httpx

    from meshcache.extproc.purger import PurgeResult

TIMEOUT = 30.0
POLL = 0.1

Many = list[str]


def purge(
    url: Annotated[
        Many | None, typer.Option(metavar="URL", callback=in_utf8, help="Everything stored for this URL.")
    ] = None,
    prefix: Annotated[
        Many | None,
        typer.Option(metavar="PREFIX", callback=in_utf8, help="URLs that begin so: https://HOST/PATH, or /PATH."),
    ] = None,
    tag: Annotated[
        Many | None,
        typer.Option(metavar="TAG", callback=in_utf8, help="Answers with this cache-tag, surrogate-key or xkey."),
    ] = None,
    route: Annotated[
        Many | None, typer.Option(metavar="NAME", callback=in_utf8, help="Answers under this CacheRoute.")
    ] = None,
    subject: Annotated[
        Many | None, typer.Option(metavar="NAME", callback=in_utf8, help="Everything that belongs to this person.")
    ] = None,
    revision: Annotated[
        Many | None, typer.Option(metavar="NAME", callback=in_utf8, help="Answers of this release of the application.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    soft: Annotated[bool, typer.Option("--soft", help="Make it stale instead: it may be revalidated.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            min=0, max=3600, metavar="SECONDS", help="Seconds to wait until nothing is pending (at least one)."
        ),
    ] = 1.0,
    data: RunningData = DEFAULT_DATA,
    socket: AdminSocket = None,
    token_file: TokenFile = None,
    as_json: ResultAsJson = False,
) -> None:
    """Purge stored answers by URL, prefix, tag, route, subject or revision, in every worker and pod.

    Each option may be given more than once; all that any of them names is purged. Exit status 0 only when every worker
    and every pod has applied it.

    Example: meshcache purge --tag product-17 --tag campaign-3 --wait 10
    """
    import msgspec

    from meshcache.extproc.purger import PurgeRequest

    _check({"--url": url, "--prefix": prefix, "--tag": tag, "--route": route, "--revision": revision})
    if not all(subject or ()):
        raise typer.BadParameter("expected the name of a person", param_hint="--subject")
    request = PurgeRequest(
        urls=tuple(url or ()),
        prefixes=tuple(prefix or ()),
        tags=tuple(tag or ()),
        routes=tuple(route or ()),
        subjects=tuple(subject or ()),
        revisions=tuple(revision or ()),
        all=everything,
        soft=soft,
    )
    if request == PurgeRequest(soft=soft):
        raise typer.BadParameter("name what is to be purged, for example --tag product-17, or --all")
    purging = _Purging(AdminApi(data, socket, token_file))
    result = purging.purge(msgspec.json.encode(request), wait)
    for name in sorted(set(route or ()) - purging.routes):
        # May be right: what was stored under a route outlives it.
        typer.echo(f"meshcache: note: no route in force is named {name}; `meshcache status` lists them", err=True)
    if (url or prefix) and not result.entries and result.counted:
        typer.echo(
            "meshcache: note: nothing was stored there; host and port are compared as clients send them", err=True
        )
    typer.echo(msgspec.json.encode(result).decode() if as_json else _readable(result))
    if result.pending:
        raise typer.Exit(1)


def _check(values: dict[str, Many | None]) -> None:
    """What no meshcache would take is wrong usage. Raises `typer.BadParameter`."""
    from meshcache.engine.purges import PurgeKind, parse_value

    for option, texts in values.items():
        kind = PurgeKind(option.removeprefix("--"))
        for text in texts or ():
            try:
                parse_value(kind, text)
            except ValueError as error:
                expected = str(error).removeprefix(f"{kind}: ")
                shown = text if len(text) <= 80 else f"{text[:80]}..."
                raise typer.BadParameter(f"{expected}, got {shown!r}", param_hint=option) from None


class _Purging:
    """Purges of a running meshcache."""

    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin
        self.routes: frozenset[str] = frozenset()
        """Those in force; known once something was purged."""

    def purge(self, body: bytes, wait: float) -> PurgeResult:
        """Make a purge and wait up to `wait` seconds until nothing is pending. Raises `CommandError`."""
        from meshcache.extproc.status import Status

        until = time.monotonic() + wait
        with self._admin.client(TIMEOUT, "nobody knows what was purged") as client:
            status = client.get("/status").raise_for_status()
            self.routes = frozenset(decoded(status.content, Status).policies.routes)
            result = _result(client.post("/purge", content=body, headers=self._admin.credentials()))
            while result.pending and time.monotonic() < until:
                time.sleep(POLL)
                result = _result(client.get(f"/purge/{result.id}"))
            return result


def _result(answer: httpx.Response) -> PurgeResult:
    from meshcache.extproc.purger import PurgeResult

    if answer.status_code != 200:
        raise CommandError(f"purge refused ({answer.status_code}): {error_of(answer) or answer.text[:200]}")
    return decoded(answer.content, PurgeResult)


def _readable(result: PurgeResult) -> str:
    entries = f"{'' if result.counted else 'at least '}{result.entries}"
    lines = [
        f"purge {result.id}  generation {result.generation}",
        f"entries       {entries}",
        f"acknowledged  {len(result.acknowledged)}  {', '.join(result.acknowledged)}".rstrip(),
        f"pending       {len(result.pending)}  {', '.join(result.pending)}".rstrip(),
    ]
    if result.widened:
        lines.append("note          the disk took no rule: everything that this pod has stored is purged")
    lines += [f"note          {note}" for note in result.notes]
    return "\n".join(lines)
