"""Labels: by what the filter drops answers. One rule serves purges and invalidations.

A label is a number of 64 bits: the first 8 bytes, little endian, of BLAKE2b-8 over its kind, a zero byte and its value.
Two that happen to be equal cost a hit, never an answer: what is dropped is asked for again.

There is none for a URL. To purge one means whatever is stored for it as policies key it (`engine.purges`), and that is
what its resource ids say: one for each way of keying, which the sidecar knows and the filter need not.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from meshcache.engine.key import resource_ids
from meshcache.engine.purges import PurgeKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.engine.purges import Rule
    from meshcache.policy.compiled import KeySpec


class Kind(StrEnum):
    """What a label names."""

    RESOURCE = "resource"
    """The value is the resource id (16 bytes, `engine.key`)."""
    ROUTE = "route"
    REVISION = "revision"
    SUBJECT = "subject"
    """The value is the person's keyed hash."""
    TAG = "tag"


def label(kind: Kind, value: bytes) -> int:
    """The label of `value`."""
    return int.from_bytes(blake2b(kind.encode() + b"\0" + value, digest_size=8).digest(), "little")


def labels_of(*, resource: bytes, route: str, revision: str, subject: bytes, tags: Iterable[str]) -> tuple[int, ...]:
    """The labels of an answer that is stored under these, each once."""
    found = [label(Kind.RESOURCE, resource), _named(Kind.ROUTE, route)]
    if revision:
        found.append(_named(Kind.REVISION, revision))
    if subject:
        found.append(label(Kind.SUBJECT, subject))
    found += [label(Kind.TAG, _tag(tag)) for tag in tags]
    return tuple(dict.fromkeys(found))


def labels_of_resources(resources: Iterable[bytes]) -> tuple[int, ...]:
    """The labels by which all that is stored for these resource ids is dropped."""
    return tuple([label(Kind.RESOURCE, resource) for resource in resources])


def labels_of_routes(routes: Iterable[str]) -> tuple[int, ...]:
    """The labels by which all that is stored for these routes is dropped."""
    return tuple([label(Kind.ROUTE, _text(route)) for route in routes])


def labels_of_rule(rule: Rule, specs: Iterable[KeySpec]) -> tuple[int, ...] | None:
    """The labels that a purge rule drops; None for everything. `specs` are the ways in which policies key a URI.

    A soft rule drops as well: how stale what it concerns may be served is for the sidecar to say.
    """
    match rule.kind:
        case PurgeKind.URL:
            host, _, path = rule.value.partition("/")
            return labels_of_resources(sorted(resource_ids("", host, (f"/{path}",), specs)))
        case PurgeKind.ROUTE:
            return (label(Kind.ROUTE, _text(rule.value)),)
        case PurgeKind.REVISION:
            return (label(Kind.REVISION, _text(rule.value)),)
        case PurgeKind.SUBJECT:
            return (label(Kind.SUBJECT, bytes.fromhex(rule.value)),)
        case PurgeKind.TAG:
            return (label(Kind.TAG, _tag(rule.value)),)
        case _:
            return None


@lru_cache(maxsize=1024)
def _named(kind: Kind, value: str) -> int:
    """The label of a name of which there are few."""
    return label(kind, _text(value))


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _tag(value: str) -> bytes:
    # As of a header field: one character for each byte.
    return value.encode("latin-1", "replace")
