"""Whatever an origin makes of a query, requests with one key are one to it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.engine.query import normalised_query
from policy_texts import compiled, policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from meshcache.policy.compiled import KeySpec


def spec(query: str) -> KeySpec:
    return compiled(policies(key=f"{{query: {query}}}")).policies["p"].key


SORTED = spec("{sort: true}")
INCLUDED = spec("{include: [a, b_c], sort: true}")


def decoded(query: str, separators: str = "&") -> Iterator[tuple[str, str]]:
    for separator in separators[1:]:
        query = query.replace(separator, separators[0])
    for pair in query.split(separators[0]):
        name, _, value = pair.partition("=")
        yield unquote_plus(name), unquote_plus(value)


def first(query: str) -> dict[str, str]:
    """As of Java's servlets or Go."""
    found: dict[str, str] = {}
    for name, value in decoded(query):
        found.setdefault(name, value)
    return found


def last_of_two_separators(query: str) -> dict[str, str]:
    """As of old Ruby and Python."""
    return dict(decoded(query, "&;"))


def any_case(query: str) -> dict[str, str]:
    """As of ASP.NET: all values of a name, whatever its case."""
    found: dict[str, str] = {}
    for name, value in decoded(query):
        found[name.lower()] = f"{found[name.lower()]},{value}" if name.lower() in found else value
    return found


def variables(query: str) -> dict[str, object]:
    """As of PHP: names that can be variables, and lists."""
    found: dict[str, object] = {}
    for called, value in decoded(query):
        name, bracket, rest = called.lstrip(" ").partition("[")
        if bracket and "]" not in rest:
            name, bracket = f"{name}_{rest}", ""
        name = name.replace(".", "_").replace(" ", "_")
        if not bracket:
            found[name] = value
            continue
        held = found.get(name)
        entries = dict(held) if isinstance(held, dict) else {}
        entries[rest.partition("]")[0] or str(len(entries))] = value
        found[name] = entries
    return found


READINGS = (first, last_of_two_separators, any_case, variables)

names = st.sampled_from(["a", "A", "a[]", "a[0]", "a[x]", "%61", "b_c", "b.c", "b+c", "b[c", "B_C", "d", ""])
queries = st.lists(st.tuples(names, st.sampled_from(["=1", "=2", "=1;a=3", ""])).map("".join), max_size=4).map("&".join)


@pytest.mark.parametrize("reading", READINGS)
@given(st.data())
def test_one_key_is_one_reading(reading: Callable[[str], Mapping[str, object]], data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(names, st.sampled_from(["=1", "=2", "=1;a=3"])).map("".join), max_size=4))
    one, other = "&".join(pairs), "&".join(data.draw(st.permutations(pairs)))
    if normalised_query(one, SORTED) == normalised_query(other, SORTED):
        assert reading(one) == reading(other)


@pytest.mark.parametrize("reading", READINGS)
@given(queries, queries)
def test_what_is_included_is_read_alike_by_those_of_one_key(
    reading: Callable[[str], Mapping[str, object]], one: str, other: str
) -> None:
    if normalised_query(one, INCLUDED) == normalised_query(other, INCLUDED):
        for name in ("a", "b_c"):
            assert reading(one).get(name) == reading(other).get(name)
