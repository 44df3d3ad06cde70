"""What of routes a plan can say: hosts, paths, and what else a match asks for, in the order of `policy.routing`.

What a match asks for and the filter cannot tell (an expression) leaves it uncertain: where all else fits, the request
is handed on. Matches that ask for other methods than GET and HEAD have no part in this.

    hosts        (u8 0 any, 1 exactly this, 2 all below | text host, with its first dot for all below)*
    paths        (u16 host | u8 0 exact, 1 prefix, 2 expressions, 3 any | text path | u32 group)*, u32 their number
    group        (u8 methods | u8 bits (1 uncertain, 2 bounded) | u16 target | texts 2: least and most path, if bounded
                 | headers: condition* | parameters: condition*)*
    condition    text name | u8 0 it is there, 1 it has this value | text value
    target       u8 0 nowhere, 1 not cached, 2 place, 3 experiment | u16 number | text tag

The lists of groups and paths have four bytes for their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshcache.policy.matching import Candidate, in_order
from meshcache.policy.patterns import literal_range
from meshcache.wasm.plan_arms import EITHER, methods_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.policy.compiled import Condition, Match
    from meshcache.wasm.plan_writer import Writer

_ANY_HOST, _THIS_HOST, _HOSTS_BELOW = range(3)
_EXACT, _PREFIX, _EXPRESSIONS, _ANY_PATH = range(4)
_UNCERTAIN, _BOUNDED = 1, 2

MOST_CANDIDATES: Final = 256
"""The filter looks at the matches of one path one after the other: where there are more, it hands on."""

Place = tuple[str, int, str]
"""Host, kind and text of a path."""


class Routes:
    """The matches of all routes, by host and path."""

    def __init__(self, matches: Iterable[tuple[Match, int]], nowhere: int) -> None:
        """`matches` stand in document order, each with the target to which it leads; `nowhere` is that of requests
        that are handed on."""
        self._nowhere = nowhere
        self._groups: dict[Place, list[Candidate[int]]] = {}
        for order, (match, target) in enumerate(matches):
            if match.methods and not methods_of(match.methods):
                continue
            candidate = Candidate(match, target, order)
            for host in match.hosts or ("",):
                self._groups.setdefault((host, *_path(match)), []).append(candidate)

    def write(self, into: Writer) -> None:
        """All of them."""
        hosts = {host: number for number, host in enumerate(dict.fromkeys(place[0] for place in self._groups))}
        into.u16(len(hosts))
        for host in hosts:
            into.u8(_HOSTS_BELOW if host.startswith("*.") else _THIS_HOST if host else _ANY_HOST)
            into.text(host.removeprefix("*").encode())
        into.u32(len(self._groups))
        for candidates in self._groups.values():
            self._group(into, in_order(candidates))
        into.u32(len(self._groups))
        for number, (host, kind, path) in enumerate(self._groups):
            into.u16(hosts[host])
            into.u8(kind)
            into.text(path.encode())
            into.u32(number)

    def _group(self, into: Writer, candidates: list[Candidate[int]]) -> None:
        if len(candidates) > MOST_CANDIDATES:
            into.u16(1)
            into.u8(EITHER)
            into.u8(_UNCERTAIN)
            into.u16(self._nowhere)
            into.u16(0)
            into.u16(0)
            return
        into.u16(len(candidates))
        for match, target, _ in candidates:
            bounds = None if match.regex is None else literal_range(match.regex)
            conditions = (*match.headers, *match.query)
            uncertain = match.regex is not None or any(condition.regex for condition in conditions)
            into.u8(methods_of(match.methods) or EITHER)
            into.u8(_UNCERTAIN * uncertain | _BOUNDED * (bounds is not None))
            into.u16(target)
            for bound in bounds or ():
                into.text(bound)
            into.each(match.headers, lambda condition: _condition(into, condition))
            into.each(match.query, lambda condition: _condition(into, condition))


def _path(match: Match) -> tuple[int, str]:
    if match.exact is not None:
        return _EXACT, match.exact
    if match.regex is not None:
        return _EXPRESSIONS, ""
    return (_PREFIX, match.prefix) if match.prefix else (_ANY_PATH, "")


def _condition(into: Writer, condition: Condition) -> None:
    into.text(condition.name.encode("latin-1"))
    into.u8(not condition.regex)
    into.text(b"" if condition.regex else condition.value.encode("latin-1"))
