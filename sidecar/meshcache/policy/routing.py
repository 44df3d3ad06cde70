"""From a request to its route, by the precedence of the Gateway API's HTTPRoute.

The most specific host wins (exact, then the longest wildcard, then any). Within a host the path: exact, then the
longest prefix, then a regular expression (of several that fit the longest, as in Istio), then any path at all. Among
those of one path: a match that names the method, then the one with most headers, then most query parameters, then the
first in document order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from meshcache.message import LONGEST_AUTHORITY, split_authority
from meshcache.policy.matching import Asked, Candidate, Group
from meshcache.policy.patterns import PatternSets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshcache.message import Headers
    from meshcache.policy.compiled import Match

T = TypeVar("T")

_FEW: Final = 4
"""So many lengths of prefixes are tried without counting the slashes of the path first."""


def host_of(authority: str) -> str:
    """The host of `authority`, without its port; empty, which fits no route's host, for what is too long to be one."""
    return "" if len(authority) > LONGEST_AUTHORITY else split_authority(authority)[0]


def path_of(target: str) -> str:
    """The path of a request target, without its query."""
    return target.partition("?")[0]


def host_fits(pattern: str, host: str) -> bool:
    """Whether `host` is `pattern`, or for `*.suffix`, any number of labels followed by it."""
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    return host == pattern


def prefix_fits(prefix: str, path: str) -> bool:
    """Whether `path` begins with the whole segments of `prefix`: `/v1` fits `/v1` and `/v1/x`, not `/v10`."""
    return path.startswith("/") and path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/")


class _Paths(Generic[T]):
    """The matches of one host."""

    __slots__ = ("_any", "_exact", "_lengths", "_patterns", "_prefixes")

    def __init__(self, candidates: list[Candidate[T]], sets: PatternSets) -> None:
        exact: dict[str, list[Candidate[T]]] = {}
        prefixes: dict[str, list[Candidate[T]]] = {}
        patterns: list[Candidate[T]] = []
        for one in candidates:
            match = one.match
            if match.exact is not None:
                exact.setdefault(match.exact, []).append(one)
            elif match.regex is not None:
                patterns.append(one)
            else:
                prefixes.setdefault(match.prefix, []).append(one)
        everywhere = prefixes.pop("", None)
        self._exact = {path: Group(group, sets) for path, group in exact.items()}
        self._prefixes = {prefix: Group(group, sets) for prefix, group in prefixes.items()}
        self._lengths = tuple(sorted({len(prefix) for prefix in prefixes}, reverse=True))
        self._patterns: Group[T] | None = Group(patterns, sets) if patterns else None
        self._any: Group[T] | None = Group(everywhere, sets) if everywhere else None

    @property
    def always(self) -> T | None:
        """Where every path leads; None when it depends on the request."""
        return None if self._any is None or self._exact or self._prefixes or self._patterns else self._any.always

    def find(self, path: str, asked: Asked) -> T | None:
        group = self._exact.get(path)
        if group is not None and (found := group.find(asked, path)) is not None:
            return found
        if self._lengths and (found := self._by_prefix(path, asked)) is not None:
            return found
        if self._patterns is not None and (found := self._patterns.find(asked, path)) is not None:
            return found
        return None if self._any is None else self._any.find(asked, path)

    def _by_prefix(self, path: str, asked: Asked) -> T | None:
        # The longest first, by the lengths that prefixes have or by the slashes of the path, whichever are fewer: so
        # neither many prefixes nor a path of many slashes cost more.
        size = len(path)
        prefixes = self._prefixes
        if len(self._lengths) <= _FEW or len(self._lengths) <= path.count("/"):
            for length in self._lengths:
                if size == length or (size > length and path[length] == "/"):
                    group = prefixes.get(path[:length])
                    if group is not None and (found := group.find(asked, path)) is not None:
                        return found
            return None
        end = size if size <= self._lengths[0] else path.rfind("/", 1, self._lengths[0] + 1)
        while end > 0:
            group = prefixes.get(path[:end])
            if group is not None and (found := group.find(asked, path)) is not None:
                return found
            end = path.rfind("/", 1, end)
        return None


class RouteIndex(Generic[T]):
    """Routes prepared for look-up; each match leads to a target of the caller's choice."""

    __slots__ = ("_any", "_everything", "_hosts", "_parameters", "_suffixes")

    def __init__(self, matches: Iterable[tuple[Match, T]]) -> None:
        """`matches` stand in document order; their expressions are sound. No target is None."""
        by_host: dict[str, list[Candidate[T]]] = {}
        anywhere: list[Candidate[T]] = []
        parameters: set[str] = set()
        for order, (match, target) in enumerate(matches):
            candidate = Candidate(match, target, order)
            parameters.update(condition.name for condition in match.query)
            for host in match.hosts:
                by_host.setdefault(host, []).append(candidate)
            if not match.hosts:
                anywhere.append(candidate)
        sets = PatternSets()
        paths = {host: _Paths(candidates, sets) for host, candidates in by_host.items()}
        self._hosts = {host: found for host, found in paths.items() if not host.startswith("*.")}
        self._suffixes = {host[1:]: found for host, found in paths.items() if host.startswith("*.")}
        self._any = _Paths(anywhere, sets)
        self._parameters = frozenset(parameters)
        self._everything = None if self._hosts or self._suffixes else self._any.always
        """Where every request leads, where that is one place."""
        sets.compile()

    def find(self, authority: str, target: str, method: str, headers: Headers) -> T | None:
        """What the match that wins leads to, or None when none fits. `target` is the path with its query."""
        if target[:1] != "/":
            return None
        if self._everything is not None:
            return self._everything
        path, _, query = target.partition("?")
        asked = Asked(method, headers, query, self._parameters)
        if self._hosts or self._suffixes:
            for paths in self._by_host(host_of(authority)):
                found = paths.find(path, asked)
                if found is not None:
                    return found
        return self._any.find(path, asked)

    def _by_host(self, host: str) -> Iterator[_Paths[T]]:
        exact = self._hosts.get(host)
        if exact is not None:
            yield exact
        if self._suffixes:
            dot = host.find(".", 1)
            while dot > 0:
                paths = self._suffixes.get(host[dot:])
                if paths is not None:
                    yield paths
                dot = host.find(".", dot + 1)
