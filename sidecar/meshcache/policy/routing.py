"""From a request to its route, by the precedence of the Gateway API's HTTPRoute.

The most specific host wins (exact, then the longest wildcard, then any); within a host the exact path, then the
longest prefix, then a match that names the method, then the one with most headers, then the first in document order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from meshcache.message import LONGEST_AUTHORITY, split_authority

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshcache.message import Headers
    from meshcache.policy.compiled import Match

T = TypeVar("T")


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


class _Candidate(Generic[T]):
    __slots__ = ("headers", "methods", "order", "target")

    def __init__(self, match: Match, target: T, order: int) -> None:
        self.methods = match.methods
        self.headers = match.headers
        self.order = order
        self.target = target

    def fits(self, method: str, headers: Headers) -> bool:
        if self.methods and method not in self.methods:
            return False
        for name, value in self.headers:  # noqa: SIM110 - a generator would cost more than the comparisons
            if headers.get(name) != value:
                return False
        return True

    def rank(self) -> tuple[bool, int, int]:
        return (not self.methods, -len(self.headers), self.order)


class _Paths(Generic[T]):
    """The matches of one host."""

    __slots__ = ("_exact", "_lengths", "_prefixes")

    def __init__(self) -> None:
        self._exact: dict[str, list[_Candidate[T]]] = {}
        self._prefixes: dict[str, list[_Candidate[T]]] = {}
        self._lengths: tuple[int, ...] = ()

    def add(self, match: Match, candidate: _Candidate[T]) -> None:
        group, path = (self._prefixes, match.prefix) if match.exact is None else (self._exact, match.exact)
        candidates = group.setdefault(path, [])
        candidates.append(candidate)
        candidates.sort(key=_Candidate.rank)
        self._lengths = tuple(sorted({len(prefix) for prefix in self._prefixes}, reverse=True))

    def find(self, path: str, method: str, headers: Headers) -> _Candidate[T] | None:
        for candidate in self._exact.get(path, ()):
            if candidate.fits(method, headers):
                return candidate
        # One look-up for each length that a prefix has, whatever the path: a path of many slashes costs no more.
        size = len(path)
        for length in self._lengths:
            if size < length or (size > length and path[length] != "/"):
                continue
            for candidate in self._prefixes.get(path[:length], ()):
                if candidate.fits(method, headers):
                    return candidate
        return None


class RouteIndex(Generic[T]):
    """Routes prepared for look-up; each match leads to a target of the caller's choice."""

    __slots__ = ("_any", "_hosts", "_suffixes")

    def __init__(self, matches: Iterable[tuple[Match, T]]) -> None:
        """`matches` stand in document order."""
        self._hosts: dict[str, _Paths[T]] = {}
        self._suffixes: dict[str, _Paths[T]] = {}
        self._any: _Paths[T] = _Paths()
        for order, (match, target) in enumerate(matches):
            candidate = _Candidate(match, target, order)
            for host in match.hosts:
                if host.startswith("*."):
                    self._suffixes.setdefault(host[1:], _Paths()).add(match, candidate)
                else:
                    self._hosts.setdefault(host, _Paths()).add(match, candidate)
            if not match.hosts:
                self._any.add(match, candidate)

    def find(self, authority: str, target: str, method: str, headers: Headers) -> T | None:
        """What the match that wins leads to, or None when none fits. `target` is the path with its query."""
        path = path_of(target)
        if path[:1] != "/":
            return None
        if self._hosts or self._suffixes:
            for paths in self._by_host(host_of(authority)):
                found = paths.find(path, method, headers)
                if found is not None:
                    return found.target
        found = self._any.find(path, method, headers)
        return None if found is None else found.target

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
