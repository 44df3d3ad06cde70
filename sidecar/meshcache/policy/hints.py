"""What a CacheConfig says that is allowed, and most likely not meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.policy.compiled import Config
    from meshcache.policy.documents import Document
    from meshcache.policy.errors import PolicyError

FILTER_TABLES: Final = 8 << 20
"""About what the tables of the filter in Envoy take; with no more than that it keeps no answer."""


def filter_keeps(config: Config) -> bool:
    """Whether `budgets.filter` leaves the filter in Envoy room for answers."""
    return config.filter_bytes is None or config.filter_bytes > FILTER_TABLES


def budget_warnings(documents: Iterable[Document], config: Config) -> list[PolicyError]:
    """What is told of budgets by which nothing is kept; `config` is what `documents` were compiled to."""
    if filter_keeps(config) or config.filter_bytes == 0:
        return []
    return [
        document.error(
            ("spec", "budgets", "filter"),
            "leaves no room for answers: the filter's own tables take 8Mi, so Envoy keeps none",
            "give more, such as 32Mi, or 0 if it is to keep none",
        )
        for document in documents
        if document.data.get("kind") == "CacheConfig"
    ]
