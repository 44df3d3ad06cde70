"""Choosing among a resource's stored variants (RFC 9111 section 4.1)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Literal

from meshcache.engine.key import variant_key
from meshcache.engine.records import VariantIndex
from meshcache.rfc.negotiation import DICTIONARY_CODINGS, content_codings
from meshcache.rfc.vary import selecting_names, selecting_values

if TYPE_CHECKING:
    from meshcache.engine.key import CacheKey
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Headers
    from meshcache.rfc.vary import Selecting

_CODING = "accept-encoding"
_DICTIONARY = "available-dictionary"
_FIRST_REDIRECT = 300

MOST_FIELD_SETS = 4
"""How many different `vary` values are kept for one resource; a look-up may have to try each."""


def variant_names(
    status: int, response: Headers, request: Headers, index: VariantIndex | None
) -> tuple[str, ...] | Literal["*"]:
    """The request fields that choose this response among its resource's, sorted; `"*"` when none can be known to.

    A response with a content coding was chosen by `accept-encoding`, even where its origin has forgotten to say so,
    and next to such a one so was any other of the resource (`index`); one that a dictionary codes by that as well.

    Redirects and errors are seldom made by what makes the variants, and often say less or nothing of what they vary on.
    Such a one is for those alone who would have got the same variants: it must not take the place of all (RFC 9111
    section 4.1).
    """
    names = selecting_names(response, request)
    if names != "*" and status >= _FIRST_REDIRECT and index is not None:
        names = tuple(sorted({*names, *chain.from_iterable(index.field_sets)}))
    if names == "*":
        return names
    if not DICTIONARY_CODINGS.isdisjoint(content_codings(response.get("content-encoding"))):
        return tuple(sorted({*names, _CODING, _DICTIONARY}))
    if _CODING in names:
        return names
    coded = "content-encoding" in response.names
    if not coded and index is not None:
        coded = any(_CODING in field_set for field_set in index.field_sets)
    return tuple(sorted((*names, _CODING))) if coded else names


def variant_keys(key: CacheKey, index: VariantIndex, request: Headers) -> list[tuple[bytes, Selecting]]:
    """Where the variants that `request` selects would be stored, the newest field set first."""
    keys = []
    for names in index.field_sets:
        selecting = selecting_values(names, request)
        keys.append((variant_key(key.storage, selecting), selecting))
    return keys


def with_variant(index: VariantIndex | None, variant: StoredResponse) -> VariantIndex:
    """`index` with the names of what `variant` was selected by in front; the oldest set goes when there are too many.

    `index` itself when it says all of that already.
    """
    names = tuple(name for name, _ in variant.selecting)
    known: tuple[tuple[str, ...], ...] = ()
    tags = variant.tags
    if index is not None:
        known = index.field_sets
        tags = tuple(tag for tag in index.tags if tag in variant.tags)
        if known[0] == names and tags == index.tags:
            return index
    others = tuple(other for other in known if other != names)
    return VariantIndex(
        variant.key, (names, *others)[:MOST_FIELD_SETS], variant.route, variant.subject, variant.revision, tags
    )
