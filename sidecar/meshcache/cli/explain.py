"""`meshcache explain`: what the policies in a folder say about a request, and why."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcache.cli.options import a_path, in_utf8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.engine.explain import Explanation
    from meshcache.message import Peer, Request, Token
    from meshcache.policy.documents import Document
    from meshcache.policy.extends import Origin
    from meshcache.policy.reasons import PassedOver, Tried
    from meshcache.policy.snapshot import Snapshot
    from meshcache.tiers.link_table import LinkReader

_NEAREST = 5
"""Routes that were passed over and are told without being asked for."""


def explain(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", callback=in_utf8, help="The request's URL, with host, as for `curl`.")
    ],
    policies: Annotated[
        Path,
        typer.Option(
            "--policies",
            metavar="PATH",
            parser=a_path,
            help="Folder of policy files, or one file, or `-`: standard input.",
        ),
    ] = Path("policies"),
    method: Annotated[str, typer.Option("--method", "-X", metavar="METHOD", help="The request's method.")] = "GET",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="FIELD",
            callback=in_utf8,
            help="A request header, `name: value`; may be repeated.",
        ),
    ] = None,
    source: Annotated[
        str, typer.Option("--from", metavar="ADDRESS", help="Address that the request comes from.")
    ] = "127.0.0.1",
    mtls: Annotated[bool, typer.Option("--mtls", help="The peer has a certificate that Envoy verified.")] = False,
    claim: Annotated[
        list[str] | None,
        typer.Option("--claim", metavar="CLAIM", help="A claim of a verified token, `name=value`; may be repeated."),
    ] = None,
    peer: Annotated[
        str, typer.Option("--peer", metavar="URI", help="URI in the peer's certificate; implies --mtls.")
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="The Envoy cluster that the request is routed to.")
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            parser=a_path,
            help="Data folder of the running meshcache: its secret chooses the arm.",
        ),
    ] = None,
    why_not: Annotated[
        str, typer.Option("--why-not", metavar="ROUTE", help="Say all that keeps the request from this route.")
    ] = "",
    values: Annotated[
        bool, typer.Option("--values", help="Say where each value of the policy stands, inherited ones too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say which route, arm, policy and tier a request gets, and why. Nothing is sent.

    The arm that is chosen by hash depends on the secret of an installation, on what has been decided about the
    experiment, and on what is remembered of its callers. Without --data a unit may get another arm here than from the
    running sidecar; shares and stickiness are the same.

    Example: meshcache explain --url http://localhost/v1/images/7 -H 'x-canary: v2'
    """
    from meshcache.cli.app import CommandError
    from meshcache.cli.arm_secret import assignment_secret
    from meshcache.engine.explain import explain as explain_request
    from meshcache.message import Peer
    from meshcache.policy.check import nearest
    from meshcache.policy.compile import compile_documents
    from meshcache.policy.documents import parse_documents
    from meshcache.policy.errors import PolicyErrors
    from meshcache.policy.reasons import tried
    from meshcache.policy.sources import FolderSource, read_files

    secret = assignment_secret(data) if data is not None else b""
    request = _request(url, method, header or [], Peer(source, mtls or bool(peer), peer), claim or [], cluster)
    try:
        documents = (
            read_files([policies]) if policies.is_file() or str(policies) == "-" else FolderSource(policies).read()
        )
        links = _links(data) if data is not None else None
        snapshot = compile_documents(documents, generation=0, secret=secret, links=links)
    except PolicyErrors as refused:
        typer.echo(str(refused), err=True)
        raise CommandError(f"the policies in {policies} are refused") from None
    if data is not None and snapshot.experiments:
        snapshot = _as_decided(snapshot, data)
    explanation = explain_request(snapshot, request)
    asked_for = next((route for route in snapshot.routes if route.name == why_not), None)
    if why_not and asked_for is None:
        hint = nearest(why_not, [route.name for route in snapshot.routes])
        raise CommandError(f"there is no route {why_not}{f' ({hint})' if hint else ''}")
    against = tried(asked_for, request) if asked_for is not None else ()
    stand = _origins(snapshot, explanation, parse_documents(documents)[0]) if values and explanation.policy else []
    if json:
        result = asdict(explanation)
        if values:
            result["values"] = [one._asdict() for one in stand]
        if why_not:
            result["why_not"] = [asdict(one) for one in against]
        typer.echo(json_module.dumps(result, indent=2))
    else:
        lines = _lines(request, explanation, why_not, against)
        for index, one in enumerate(stand):
            value = json_module.dumps(one.value) if isinstance(one.value, list | dict | bool) else one.value
            lines.append(f"{'' if index else 'values':<11}{one.field}: {value} ({one.file}:{one.line})")
        typer.echo("\n".join(lines))


def _links(data: Path) -> LinkReader | None:
    """What is remembered of callers; nothing is remembered of this one."""
    from meshcache.tiers.link_table import FILE_NAME, LinkTable

    table = LinkTable(data / FILE_NAME)
    try:
        return table.reader() if table.open_existing() else None
    except OSError as error:
        typer.echo(f"note: what is remembered of callers cannot be read: {error}", err=True)
        return None


def _as_decided(snapshot: Snapshot, data: Path) -> Snapshot:
    """`snapshot` with what the running sidecar has in force of its experiments."""
    from meshcache.cli.app import CommandError
    from meshcache.cli.status import status_of

    try:
        status = status_of(data)
    except CommandError as error:
        typer.echo(f"note: what has been decided about experiments is not known: {error}", err=True)
        return snapshot
    decided = {one.name: one.overlay for one in status.experiments if one.overlay is not None}
    return snapshot.with_overlays(decided, status.adoptions)


def _origins(snapshot: Snapshot, found: Explanation, documents: Sequence[Document]) -> list[Origin]:
    """Where each value of the policy stands: of several experiments' arms, what each changes of the route's policy."""
    from meshcache.policy.extends import origins

    if found.policy in snapshot.policies:
        return origins(documents, found.policy)
    route = next(one for one in snapshot.routes if one.name == found.route)
    base = {} if route.policy is None else {one.field: one for one in origins(documents, route.policy.name)}
    values = dict(base)
    for name in found.policy.split("+"):
        mine = {one.field: one for one in origins(documents, name)}
        for field in {**base, **mine}:
            if field not in mine:
                values.pop(field, None)
            elif field not in base or mine[field].value != base[field].value:
                values[field] = mine[field]
    return list(values.values())


def _request(url: str, method: str, header: list[str], peer: Peer, claim: list[str], cluster: str) -> Request:
    """The request that the options describe. Raises `typer.BadParameter`."""
    import ipaddress

    from meshcache.message import Headers, Request
    from meshcache.rfc.fields import is_field_value, is_token

    scheme, authority, path = _parts(url)
    if not is_token(method):
        raise typer.BadParameter(f"expected a method such as GET, got {method!r}", param_hint="--method")
    fields = []
    for text in header:
        name, separator, value = text.partition(":")
        # A character for each byte, as fields come from Envoy.
        value = value.strip().encode().decode("latin-1")
        if not separator or not is_token(name.strip()) or not is_field_value(value):
            raise typer.BadParameter(f"expected `name: value`, got {text!r}", param_hint="--header")
        fields.append((name.strip().lower(), value))
    # Envoy has one place for it, whichever way it came.
    authority = next((value for name, value in fields if name == "host"), authority)
    fields = [field for field in fields if field[0] != "host"]
    try:
        ipaddress.ip_address(peer.address.partition("%")[0])
    except ValueError:
        raise typer.BadParameter(f"expected an IP address, got {peer.address!r}", param_hint="--from") from None
    return Request(
        method=method,
        authority=authority,
        path=path,
        headers=Headers(fields),
        scheme=scheme,
        peer=peer,
        cluster=cluster,
        tokens=_tokens(claim),
    )


def _parts(url: str) -> tuple[str, str, str]:
    """Scheme, authority and path of `url`, as the cache gets them when a client asks for it through Envoy.

    Raises `typer.BadParameter`.
    """
    from meshcache.engine.paths import as_handed_on
    from meshcache.engine.purges import PurgeKind, parse_value, sent_path

    scheme, mark, rest = url.partition("://")
    rest = rest.partition("#")[0]
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    authority, path = rest[:end].rpartition("@")[2], rest[end:]
    scheme = scheme.lower()
    if not mark or scheme not in ("http", "https") or not authority:
        raise typer.BadParameter(
            f"expected a URL such as http://localhost/v1/images/7, got {url!r}", param_hint="--url"
        )
    try:
        parse_value(PurgeKind.URL, f"{scheme}://{authority}{path}")
    except ValueError as error:
        expected = str(error).removeprefix(f"{PurgeKind.URL}: ")
        raise typer.BadParameter(f"{expected}, got {url[:80]!r}", param_hint="--url") from None
    return scheme, authority, as_handed_on(sent_path(path))


def _tokens(claim: list[str]) -> tuple[Token, ...]:
    """The token with these claims. Raises `typer.BadParameter`."""
    from meshcache.message import Token

    claims = {}
    for text in claim:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"expected `name=value`, got {text!r}", param_hint="--claim")
        claims[name] = value
    return (Token(claims.get("iss", ""), claims, repr(sorted(claims.items())).encode()),) if claims else ()


def _passed_over(found: Sequence[PassedOver]) -> list[tuple[str, str]]:
    near = sorted(found, key=lambda one: one.away)[:_NEAREST]
    rows = [("", f"not {one.route}: {one.why}") for one in near]
    left = len(found) - len(near)
    return [*rows, ("", f"and {left} more that are no nearer (--why-not ROUTE tells of one)")] if left else rows


def _why_not(route: str, found: Explanation, against: Sequence[Tried]) -> list[tuple[str, str]]:
    if found.route == route:
        return [("why not", f"{route} is the route that is chosen")]
    over = next(one for one in found.passed_over if one.route == route)
    if not over.away:
        return [("why not", f"{route}: {over.why}")]
    rows: list[tuple[str, str]] = []
    for one in against:
        rows.append(("why not" if not rows else "", f"{route} ({one.match}):"))
        rows += [("", f"- {reason}") for reason in one.against]
    return rows


def _lines(request: Request, found: Explanation, why_not: str, against: Sequence[Tried]) -> list[str]:
    rows = [("request", f"{request.method} {request.scheme}://{request.authority}{request.path}")]
    rows.append(("route", f"{found.route} ({found.route_why})" if found.route else f"none: {found.route_why}"))
    rows += _why_not(why_not, found, against) if why_not else _passed_over(found.passed_over)
    for one in found.experiments:
        rows += [("experiment", one.experiment), ("arm", f"{one.arm}: {one.why}")]
    rows.append(("policy", found.policy or "none: the request goes to the origin"))
    if found.policy:
        rows.append(("score", f"{'none' if found.score is None else f'{found.score:g}'}: {found.score_why}"))
        rows.append(("tier", f"{found.tier}: {found.tier_why}"))
    if found.bypass:
        rows.append(("decision", f"bypass; {found.bypass}"))
    elif found.policy:
        rows += [("decision", "looked up"), ("collapse", found.collapse), ("refresh", found.refresh)]
        rows.append(("shown", found.shown))
        rows += [("key" if not index else "", f"{n}: {v}") for index, (n, v) in enumerate(found.key.items())]
    return [f"{label:<11}{text}".rstrip() for label, text in rows]
