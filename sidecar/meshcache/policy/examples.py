"""Requests that stand for the traffic of a match, to see where it goes under two sets of policies."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from meshcache.message import Headers, Request
from meshcache.policy.patterns import fits, literal_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshcache.policy.compiled import Condition, Match, Route
    from meshcache.policy.snapshot import Snapshot

MOST_EXAMPLES: Final = 5000
_ANY_HOST: Final = "any.example"


@dataclass(frozen=True)
class Moved:
    """Requests like one that belong elsewhere now. Empty text: to no route, or under no policy."""

    method: str
    url: str
    """Host, path and query."""
    headers: tuple[str, ...]
    """Each as `name: value`."""
    old_route: str
    old_policy: str
    """The route's own; arms of an experiment may have others."""
    new_route: str
    new_policy: str


def _text(pattern: str) -> str | None:
    """A text that fits an expression, if its least one does."""
    found = literal_range(pattern)
    if found is None:
        return None
    least = found[0].decode("latin-1")
    return next((text for text in (least, f"{least}x", f"{least}/x") if text and fits(pattern, text)), None)


def _value(condition: Condition) -> str | None:
    return _text(condition.value) if condition.regex else condition.value


def _paths(match: Match) -> Iterator[str]:
    if match.exact is not None:
        yield match.exact
    elif match.regex is not None:
        text = _text(match.regex)
        if text is not None and text.startswith("/"):
            yield text
    else:
        yield f"{match.prefix}/..." if match.prefix else "/..."


def examples(match: Match) -> Iterator[Request]:
    """Requests that fit `match`: one for each of its hosts, if its expressions let themselves be fitted."""
    headers = [(one.name, _value(one)) for one in match.headers]
    query = [(one.name, _value(one)) for one in match.query]
    given = [(name, value) for name, value in headers if value is not None]
    asked = [f"{name}={value}" for name, value in query if value is not None]
    if len(given) < len(headers) or len(asked) < len(query):
        return
    methods = sorted(match.methods)
    for host in match.hosts or (_ANY_HOST,):
        authority = f"any{host[1:]}" if host.startswith("*") else host
        for path in _paths(match):
            target = f"{path}?{'&'.join(asked)}" if asked else path
            yield Request("GET" if not methods or "GET" in methods else methods[0], authority, target, Headers(given))


def moved(old: Snapshot, new: Snapshot) -> list[Moved]:
    """Where traffic goes now, of what either set names, wherever route or policy are not what they were."""
    found: dict[tuple[str, ...], Moved] = {}
    for request in islice(_all((*old.routes, *new.routes)), MOST_EXAMPLES):
        before, after = _place(old, request), _place(new, request)
        if before != after:
            headers = tuple(f"{name}: {value}" for name, value in request.headers)
            one = Moved(request.method, f"{request.authority}{request.path}", headers, *before, *after)
            found.setdefault((one.method, one.url, *headers), one)
    return list(found.values())


def _all(routes: Iterable[Route]) -> Iterator[Request]:
    for route in routes:
        for match in route.matches:
            yield from examples(match)


def _place(snapshot: Snapshot, request: Request) -> tuple[str, str]:
    name = snapshot.select(request).route
    route = next((one for one in snapshot.routes if one.name == name), None)
    return name, route.policy.name if route is not None and route.policy is not None else ""
