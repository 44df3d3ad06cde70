"""The query as it enters the cache key."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from meshcache.lookalikes import parameter

if TYPE_CHECKING:
    from meshcache.policy.compiled import KeySpec

_LONGEST: Final = 8192


def normalised_query(query: str, spec: KeySpec) -> str:
    """`query` as it enters the key, which never says less than the origin may read in it.

    So one of more than 8 KiB enters as it is, as to take it apart would stop the event loop for others; and one with a
    `;`, which some origins take for a separator. A parameter is left out only when its name is plain, that is without
    escapes (`%61` for `a`), and looks like none that is to be in. Where two names may be taken for one another, the
    order of the parameters can carry meaning, and stays.
    """
    if not query:
        return ""
    everything = spec.query_include == ("*",) and not spec.query_exclude
    if (everything and not spec.query_sort) or len(query) > _LONGEST or ";" in query:
        return query
    pairs = query.split("&")
    if not everything:
        pairs = [pair for pair in pairs if _keyed(pair.partition("=")[0], spec)]
    if spec.query_sort and _are_distinct(pairs):
        # By name alone, and stable: the order of one name's repeats can carry meaning.
        pairs.sort(key=lambda pair: pair.partition("=")[0])
    return "&".join(pairs)


def _are_distinct(pairs: list[str]) -> bool:
    """Whether no two different names among these may be taken for one another."""
    names = {pair.partition("=")[0] for pair in pairs}
    return len({parameter(name) for name in names}) == len(names)


def _keyed(name: str, spec: KeySpec) -> bool:
    if "%" in name or "+" in name:
        return True
    if _matches(name, spec.query_exclude):
        return False
    include = spec.query_include
    return _matches(name, include) or _matches(parameter(name), _meant(include))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1])) for pattern in patterns)


@lru_cache(maxsize=256)
def _meant(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """What these stand for among names that `parameter` has made."""
    return tuple(
        parameter(pattern[:-1].partition("[")[0]) + "*" if pattern.endswith("*") else parameter(pattern)
        for pattern in patterns
    )
