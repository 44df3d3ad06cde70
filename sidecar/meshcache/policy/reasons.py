"""Why a request belongs to a route and not to another, told one match at a time.

It follows the rules of `routing` in a second and plainer way, for people, and for tests to hold the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcache.policy.matching import field_values, first_values, precedence
from meshcache.policy.patterns import fits
from meshcache.policy.routing import host_fits, host_of, path_of, prefix_fits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshcache.message import Request
    from meshcache.policy.compiled import Condition, Match, Route

Rank = tuple[int, int, int, int, bool, int, int, int]


@dataclass(frozen=True)
class PassedOver:
    """A route that a request does not get, and why."""

    route: str
    why: str
    """The first thing of each match that does not fit, or what the route that was chosen has over it."""
    away: int
    """In how many things its nearest match does not fit; 0: it fits, and another goes first."""


@dataclass(frozen=True)
class Tried:
    """One match of a route, held against a request."""

    match: str
    """The match in one line."""
    against: tuple[str, ...]
    """Everything that does not fit; empty when it fits."""


def tried(route: Route, request: Request) -> tuple[Tried, ...]:
    """Each match of `route`, and what speaks against it."""
    return tuple(Tried(described(match), tuple(mismatches(match, request))) for match in route.matches)


def mismatches(match: Match, request: Request) -> Iterator[str]:
    """Everything in which `request` does not fit `match`, in the order in which they are looked at."""
    host, path = host_of(request.authority), path_of(request.path)
    if match.hosts and not any(host_fits(pattern, host) for pattern in match.hosts):
        yield f"the host {host} is not {one_of(match.hosts)}"
    if match.exact is not None:
        if path != match.exact:
            yield f"the path is not {match.exact}"
    elif match.regex is not None:
        if not path.startswith("/") or not fits(match.regex, path):
            yield f"the path does not fit {match.regex}"
    elif not prefix_fits(match.prefix, path):
        yield f"the path is not below {match.prefix or '/'}"
    if match.methods and request.method not in match.methods:
        yield f"the method is not {one_of(sorted(match.methods))}"
    for condition in match.headers:
        yield from _unlike("header", condition, field_values(request.headers, condition.name))
    if match.query:
        names = frozenset(condition.name for condition in match.query)
        found = first_values(request.path.partition("?")[2], names)
        for condition in match.query:
            yield from _unlike("parameter", condition, [found[condition.name]] if condition.name in found else [])


def _unlike(what: str, condition: Condition, got: Sequence[str]) -> Iterator[str]:
    told = " and ".join(map(repr, got)) or "absent"
    if condition.regex:
        if not any(fits(condition.value, value) for value in got):
            yield f"the {what} {condition.name} is {told}, which does not fit {condition.value}"
    elif condition.value not in got:
        yield f"the {what} {condition.name} is {told}, not {condition.value!r}"


def mismatch(match: Match, request: Request) -> str:
    """The first thing in which `request` does not fit `match`; empty when it fits."""
    return next(mismatches(match, request), "")


def rank(match: Match, request: Request, order: int) -> Rank:
    """How a match that fits compares with the others: the smallest wins."""
    host = host_of(request.authority)
    fitting = [
        (1 if pattern.startswith("*.") else 0, -len(pattern)) for pattern in match.hosts if host_fits(pattern, host)
    ]
    kind, length = min(fitting, default=(2, 0))
    if match.exact is not None:
        by_path = (0, 0)
    elif match.prefix:
        by_path = (1, -len(match.prefix))
    elif match.regex is not None:
        by_path = (2, -len(match.regex))
    else:
        by_path = (3, 0)
    return (kind, length, *by_path, *precedence(match), order)


_PRECEDENCE = (
    (2, "names the host more exactly"),
    (3, "names the path more exactly"),
    (4, "names more of the path"),
    (5, "names the method"),
    (6, "names more headers"),
    (7, "names more query parameters"),
    (8, "stands first"),
)


def precedence_reason(winner: Rank, loser: Rank) -> str:
    """What the winner has over the loser."""
    return next(text for size, text in _PRECEDENCE if winner[:size] != loser[:size])


def one_of(values: Sequence[str]) -> str:
    """Alternatives as a text has them."""
    return " or ".join(values)


def described(match: Match) -> str:
    """A match in one line."""
    parts = [f"host {one_of(match.hosts)}"] if match.hosts else []
    if match.exact is not None:
        parts.append(f"path {match.exact}")
    elif match.regex is not None:
        parts.append(f"path like {match.regex}")
    else:
        parts.append(f"path prefix {match.prefix or '/'}")
    if match.methods:
        parts.append(f"method {one_of(sorted(match.methods))}")
    for what, conditions in (("header", match.headers), ("parameter", match.query)):
        parts += [f"{what} {one.name}{' like' if one.regex else ':'} {one.value}" for one in conditions]
    return ", ".join(parts)


def route_reasons(routes: Sequence[Route], request: Request, chosen: str) -> tuple[str, tuple[PassedOver, ...]]:
    """Why the route named `chosen` was chosen (empty: none fits), and each other one, in document order, was not."""
    best: dict[str, tuple[Rank, Match]] = {}
    order = 0
    for route in routes:
        for match in route.matches:
            order += 1
            if not mismatch(match, request):
                ranked = (rank(match, request, order), match)
                best[route.name] = min(best.get(route.name, ranked), ranked, key=lambda pair: pair[0])
    passed_over = []
    for route in routes:
        if route.name == chosen:
            continue
        if route.name in best:
            why = precedence_reason(best[chosen][0], best[route.name][0])
            passed_over.append(PassedOver(route.name, f"fits too, but {chosen} {why}", 0))
            continue
        reasons = [list(mismatches(match, request)) for match in route.matches]
        why = "; ".join(dict.fromkeys(found[0] for found in reasons))
        passed_over.append(PassedOver(route.name, why, min(map(len, reasons))))
    return described(best[chosen][1]) if chosen else "no route fits", tuple(passed_over)
