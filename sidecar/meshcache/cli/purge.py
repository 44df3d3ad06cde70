"""`meshcache purge`: declare stored answers dead or stale, in every worker and pod."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshcache.cli.app import CommandError
from meshcache.cli.paths import DEFAULT_DATA

if TYPE_CHECKING:
    import httpx

    from meshcache.extproc.purger import PurgeResult

TIMEOUT = 30.0
POLL = 0.1

Many = list[str]


def purge(
    url: Annotated[Many | None, typer.Option(metavar="URL", help="Everything stored for this URL.")] = None,
    prefix: Annotated[
        Many | None, typer.Option(metavar="PREFIX", help="URLs that begin so: https://HOST/PATH, or /PATH.")
    ] = None,
    tag: Annotated[
        Many | None, typer.Option(metavar="TAG", help="Answers with this cache-tag, surrogate-key or xkey.")
    ] = None,
    route: Annotated[Many | None, typer.Option(metavar="NAME", help="Answers under this CacheRoute.")] = None,
    subject: Annotated[
        Many | None, typer.Option(metavar="NAME", help="Everything that belongs to this person.")
    ] = None,
    revision: Annotated[
        Many | None, typer.Option(metavar="NAME", help="Answers of this release of the application.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    soft: Annotated[bool, typer.Option("--soft", help="Make it stale instead: it may be revalidated.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            min=0, max=3600, metavar="SECONDS", help="Seconds to wait until nothing is pending (at least one)."
        ),
    ] = 1.0,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Data folder of the running meshcache.")] = DEFAULT_DATA,
    socket: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its admin socket.  [default: <data>/run/admin.sock]", show_default=False),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with its token.  [default: <data>/admin.token]", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
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
    admin = _Admin(data, socket, token_file)
    result = admin.purge(msgspec.json.encode(request), wait)
    for name in sorted(set(route or ()) - admin.routes):
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


class _Admin:
    """The admin API of a running meshcache."""

    def __init__(self, data: Path, socket: Path | None, token_file: Path | None) -> None:
        from meshcache.admin.token import FILE_NAME
        from meshcache.cli.paths import admin_socket

        self._data = data
        self._socket = socket or admin_socket(data)
        self._token_file = token_file or data / FILE_NAME
        self.routes: frozenset[str] = frozenset()
        """Those in force; known once something was purged."""

    def purge(self, body: bytes, wait: float) -> PurgeResult:
        """Make a purge and wait up to `wait` seconds until nothing is pending."""
        import httpx

        from meshcache.admin.token import Token, TokenError

        until = time.monotonic() + wait
        try:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(self._socket)), timeout=TIMEOUT) as client:
                # The socket first: without a meshcache there is no token either.
                status = client.get("http://meshcache/status").raise_for_status()
                self.routes = _routes(status.content)
                headers = Token.load(self._token_file).header
                result = _decoded(client.post("http://meshcache/purge", content=body, headers=headers))
                while result.pending and time.monotonic() < until:
                    time.sleep(POLL)
                    result = _decoded(client.get(f"http://meshcache/purge/{result.id}"))
                return result
        except TokenError as error:
            raise CommandError(f"no token for this meshcache: {error}") from error
        except httpx.TimeoutException:
            reason = f"{self._socket} did not answer within {TIMEOUT:g} s: nobody knows what was purged"
        except (httpx.HTTPError, OSError):
            reason = f"no meshcache answers on {self._socket}: give its --data or --socket"
        raise CommandError(reason)


def _routes(status: bytes) -> frozenset[str]:
    import msgspec

    from meshcache.extproc.status import Status

    try:
        return frozenset(msgspec.json.decode(status, type=Status).policies.routes)
    except msgspec.DecodeError as error:
        raise CommandError(f"meshcache answered what this release does not understand: {error}") from error


def _decoded(answer: httpx.Response) -> PurgeResult:
    import msgspec

    from meshcache.extproc.purger import PurgeResult

    if answer.status_code != 200:
        raise CommandError(_reason(answer))
    try:
        return msgspec.json.decode(answer.content, type=PurgeResult)
    except msgspec.DecodeError as error:
        raise CommandError(f"meshcache answered what this release does not understand: {error}") from error


def _reason(answer: httpx.Response) -> str:
    try:
        found: Any = answer.json()
        reason = str(found["error"])
    except (ValueError, KeyError, TypeError):
        reason = answer.text[:200]
    return f"purge refused ({answer.status_code}): {reason}"


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
