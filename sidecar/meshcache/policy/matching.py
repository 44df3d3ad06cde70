"""What a match asks of a request beside host and path, for any number of matches at once.

The matches of one path stand in order of precedence and have a bit each, the lowest for the one that goes first. What
a request says is looked up once for each name (method, header, parameter) and gives the bits of those that it fits;
their conjunction is what fits in all, and its lowest bit the answer. So the cost follows from the names that the
request and the matches have in common, not from the number of matches. (Bit vectors for classifying packets:
Lakshman and Stiliadis, SIGCOMM 1998.)
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshcache.message import Headers
    from meshcache.policy.compiled import Condition, Match
    from meshcache.policy.patterns import PatternSet, PatternSets

T = TypeVar("T")

Name = tuple[Literal["header", "query"], str]


def field_values(headers: Headers, name: str) -> Sequence[str]:
    """The values of a header, one for each line that it is sent in: one of them has to fit, as in Envoy since 1.39."""
    value = headers.get(name)
    if value is None:
        return ()
    return (value,) if len(headers.names) == len(headers.fields) else headers.get_all(name)


def first_values(query: str, names: frozenset[str]) -> dict[str, str]:
    """The first value of each parameter of `query` that is among `names`, as sent: nothing is decoded, as in Envoy."""
    found: dict[str, str] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name in names and name not in found:
            found[name] = value
    return found


class Asked:
    """What a request says, as matches look at it; its query is read when the first of them asks for it."""

    __slots__ = ("_names", "_parameters", "_query", "headers", "method")

    def __init__(self, method: str, headers: Headers, query: str, names: frozenset[str]) -> None:
        """`names` are the parameters that any match asks for."""
        self.method = method
        self.headers = headers
        self._query = query
        self._names = names
        self._parameters: dict[str, str] | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """The first values of the parameters that matter."""
        found = self._parameters
        if found is None:
            found = self._parameters = first_values(self._query, self._names) if self._query else {}
        return found

    def values(self, name: Name) -> Sequence[str]:
        """What stands under `name`; empty when it is absent."""
        if name[0] == "header":
            return field_values(self.headers, name[1])
        value = self.parameters.get(name[1])
        return () if value is None else (value,)


def precedence(match: Match) -> tuple[bool, int, int]:
    """How a match compares with others of the same host and path, but for their order: the smallest goes first."""
    return (not match.methods, -len(match.headers), -len(match.query))


class Candidate(NamedTuple, Generic[T]):
    """A match, where it leads, and its place in document order."""

    match: Match
    target: T
    order: int

    def conditions(self) -> dict[Name, Condition]:
        """What it asks of headers and query, by name."""
        headers: dict[Name, Condition] = {("header", one.name): one for one in self.match.headers}
        return headers | {("query", one.name): one for one in self.match.query}


def in_order(candidates: Iterable[Candidate[T]]) -> list[Candidate[T]]:
    """Those of one path, or all that have an expression for it: the one that goes first if it fits, first."""
    return sorted(candidates, key=lambda one: (-len(one.match.regex or ""), *precedence(one.match), one.order))


class _Values:
    """What the matches that ask for one name want to see there."""

    __slots__ = ("_exact", "_masks", "_patterns")

    def __init__(self, wanted: Iterable[tuple[int, Condition]], sets: PatternSets) -> None:
        self._exact: dict[str, int] = {}
        masks: dict[str, int] = {}
        for bit, condition in wanted:
            into = masks if condition.regex else self._exact
            into[condition.value] = into.get(condition.value, 0) | bit
        self._patterns: PatternSet | None = sets.of(tuple(masks)) if masks else None
        self._masks = tuple(masks.values())

    def fitting(self, value: str) -> int:
        found = self._exact.get(value, 0)
        if self._patterns is not None:
            for number in self._patterns.fitting(value):
                found |= self._masks[number]
        return found


class _Alike:
    """The matches of a group that ask for the same names."""

    __slots__ = ("_values",)

    def __init__(self, values: Sequence[tuple[Name, _Values]]) -> None:
        self._values = tuple(values)

    def fitting(self, asked: Asked) -> int:
        found = -1
        for name, wanted in self._values:
            fitting = 0
            for value in asked.values(name):
                fitting |= wanted.fitting(value)
            found &= fitting
            if not found:
                return 0
        return found


class Group(Generic[T]):
    """Matches between which method, headers and query decide."""

    __slots__ = (
        "_any_method",
        "_by_header",
        "_by_parameter",
        "_methods",
        "_patterns",
        "_targets",
        "_unconditional",
        "always",
    )

    def __init__(self, candidates: Iterable[Candidate[T]], sets: PatternSets) -> None:
        """`candidates` ask for the same path, or each for an expression: then the longer goes first."""
        ordered = in_order(candidates)
        bits = [1 << place for place in range(len(ordered))]
        self._targets = tuple(one.target for one in ordered)
        self._unconditional = 0
        self._by_header: dict[str, tuple[_Alike, ...]] = {}
        self._by_parameter: dict[str, tuple[_Alike, ...]] = {}
        self._methods_of(ordered, bits)
        self._conditions_of(ordered, bits, sets)
        masks: dict[str, int] = {}
        for bit, one in zip(bits, ordered, strict=True):
            if one.match.regex is not None:
                masks[one.match.regex] = masks.get(one.match.regex, 0) | bit
        self._patterns: tuple[PatternSet, tuple[int, ...]] | None = None
        if masks:
            self._patterns = (sets.of(tuple(masks)), tuple(masks.values()))
        first = ordered[0]
        self.always: T | None = None
        """Where every request leads; None when it depends on the request."""
        if first.match.regex is None and not first.match.methods and not first.conditions():
            self.always = first.target

    def _methods_of(self, ordered: list[Candidate[T]], bits: list[int]) -> None:
        self._any_method = sum(bit for bit, one in zip(bits, ordered, strict=True) if not one.match.methods)
        self._methods: dict[str, int] = {}
        for bit, one in zip(bits, ordered, strict=True):
            for method in one.match.methods:
                self._methods[method] = self._methods.get(method, self._any_method) | bit

    def _conditions_of(self, ordered: list[Candidate[T]], bits: list[int], sets: PatternSets) -> None:
        alike: dict[tuple[Name, ...], list[tuple[int, dict[Name, Condition]]]] = {}
        for bit, one in zip(bits, ordered, strict=True):
            conditions = one.conditions()
            if conditions:
                alike.setdefault(tuple(sorted(conditions)), []).append((bit, conditions))
            else:
                self._unconditional |= bit
        # Each is found by one of its names, the one that fewest others have as well.
        common = Counter(name for names in alike for name in names)
        for names, members in alike.items():
            values = [(name, _Values([(bit, wanted[name]) for bit, wanted in members], sets)) for name in names]
            kind, rarest = min(names, key=lambda name: (common[name], name))
            by = self._by_header if kind == "header" else self._by_parameter
            by[rarest] = (*by.get(rarest, ()), _Alike(values))

    def find(self, asked: Asked, path: str) -> T | None:
        """Where the first match that fits leads, or None. `path` counts for expressions only."""
        if self.always is not None:
            return self.always
        alive = self._methods.get(asked.method, self._any_method)
        if self._patterns is not None:
            patterns, masks = self._patterns
            by_path = 0
            for number in patterns.fitting(path):
                by_path |= masks[number]
            alive &= by_path
        if not alive:
            return None
        found = alive & self._unconditional
        if self._by_header:
            for name in self._by_header.keys() & asked.headers.names:
                for alike in self._by_header[name]:
                    found |= alive & alike.fitting(asked)
        if self._by_parameter:
            for name in self._by_parameter.keys() & asked.parameters.keys():
                for alike in self._by_parameter[name]:
                    found |= alive & alike.fitting(asked)
        if not found:
            return None
        return self._targets[(found & -found).bit_length() - 1]
