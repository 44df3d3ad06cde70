"""Matches that no request can reach, because another match always goes first.

What is found is certain; not everything is found, since whether one regular expression covers another is not asked.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.policy.errors import PolicyError
from meshcache.policy.matching import precedence
from meshcache.policy.patterns import fits, literal_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from meshcache.policy.compiled import Condition, Match, Route
    from meshcache.policy.documents import Document

_ANYTHING: Final = frozenset({".*", "/.*", "(.*)", "/(.*)", ".+", "/?.*"})

_MOST_COMPARED: Final = 2_000_000
"""Pairs of matches that are looked at; more than that only thousands of matches of one path have."""

_Path = tuple[str, str]
"""`exact`, `prefix` or `regex`, and the text; `prefix` and nothing for any path."""


class Spot(NamedTuple):
    """A match and where it is written: the route's name, and the match's number in it."""

    route: str
    number: int
    match: Match
    order: int


class Shadow(NamedTuple):
    """A match that is never reached, and one of those that are in its way."""

    hidden: Spot
    by: Spot


def spots(routes: Iterable[Route]) -> list[Spot]:
    """All matches in document order."""
    pairs = [(route.name, number, match) for route in routes for number, match in enumerate(route.matches)]
    return [Spot(*pair, order) for order, pair in enumerate(pairs)]


def shadows(routes: Iterable[Route]) -> list[Shadow]:
    """The matches that cannot be reached, in document order."""
    found: list[Shadow] = []
    left = _MOST_COMPARED
    everything = spots(routes)
    there: dict[tuple[str, _Path], list[Spot]] = defaultdict(list)
    for spot in everything:
        for host in spot.match.hosts or ("",):
            there[(host, _path(spot.match))].append(spot)
    for spot in everything:
        hiding: Spot | None = None
        # Whoever asks has one host and one method: for each of them somebody has to go first.
        for host in spot.match.hosts or ("",):
            for method in spot.match.methods or ("",):
                before = [one for path in _before(spot.match) for one in there.get((host, path), ())]
                left -= len(before)
                if left < 0:
                    return found
                hiding = next((one for one in before if _goes_first(one, spot, method)), None)
                if hiding is None:
                    break
            if hiding is None:
                break
        if hiding is not None:
            found.append(Shadow(spot, hiding))
    return found


def _path(match: Match) -> _Path:
    if match.exact is not None:
        return ("exact", match.exact)
    return ("prefix", match.prefix) if match.regex is None else ("regex", match.regex)


def _before(match: Match) -> Iterator[_Path]:
    """Paths that hold every path of `match` and do not go after it."""
    yield _path(match)
    if match.regex is not None:
        found = literal_range(match.regex)
        if found is None:
            return
        least, most = (bound.decode("latin-1") for bound in found)
        if least == most:
            yield ("exact", least)
        for end in range(2, len(least) + 1):
            prefix = least[:end]
            # Between `/v1/` and `/v10` there is nothing but what lies below `/v1`.
            if (least == prefix == most) or (least >= f"{prefix}/" and most <= f"{prefix}0"):
                yield ("prefix", prefix)
    elif match.exact is None and not match.prefix:
        for pattern in _ANYTHING:
            yield from (("regex", f"{begin}{pattern}{end}") for begin in ("", "^") for end in ("", "$"))


def _goes_first(one: Spot, other: Spot, method: str) -> bool:
    """Whether every request of `other` with this method (empty: any) that has the same host is taken by `one`."""
    first, then = one.match, other.match
    if first.methods and method not in first.methods:
        return False
    if not _covers(first.headers, then.headers) or not _covers(first.query, then.query):
        return False
    if _path(first) != _path(then):
        return True
    return (*precedence(first), one.order) < (*precedence(then), other.order)


def _covers(wide: Sequence[Condition], narrow: Sequence[Condition]) -> bool:
    """Whether everything that fits all of `narrow` fits all of `wide`."""
    asked = {condition.name: condition for condition in narrow}
    for condition in wide:
        other = asked.get(condition.name)
        if other is None:
            return False
        if other != condition and (other.regex or not condition.regex or not fits(condition.value, other.value)):
            return False
    return True


def warnings(documents: Iterable[Document], routes: Sequence[Route], known: Sequence[Route] = ()) -> list[PolicyError]:
    """What is told of matches that are never reached; `routes` are what `documents` were compiled to.

    Left out are those of which the same holds in the routes `known`.
    """
    told = {(one.hidden.route, one.hidden.match) for one in shadows(known)}
    by_name = {
        metadata["name"]: document
        for document in documents
        if document.data.get("kind") == "CacheRoute" and isinstance(metadata := document.data.get("metadata"), dict)
    }
    found = []
    for hidden, by in shadows(routes):
        if (hidden.route, hidden.match) in told:
            continue
        document = by_name[hidden.route]
        file, position = by_name[by.route].place(("spec", "match", by.number))
        of = "an earlier match of this route" if by.route == hidden.route else f"route {by.route}"
        message = f"is never reached: {of} at {file}:{position.line} goes first for all that fits it"
        hint = "take it out, or make it more specific"
        if hidden.match.regex is not None and by.match.regex is None and by.match.exact is None:
            hint = f"a prefix goes before an expression: give this one a prefix longer than {by.match.prefix}"
        found.append(document.error(("spec", "match", hidden.number), message, hint))
    return found
