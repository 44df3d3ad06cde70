"""Who may be refreshed in the background, when, by which way, and what is asked for.

A refresh sends the parts that the key was made of, and nothing of the client's secrets. Where it goes is settled by
the operator: it is never taken from a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshcache.engine.key import RETARGETING_SPELLED
from meshcache.engine.ports import RefreshRequest
from meshcache.message import Headers
from meshcache.rfc.spelling import meant
from meshcache.rfc.targeted import capability

if TYPE_CHECKING:
    from meshcache.engine.records import StoredResponse
    from meshcache.message import Request
    from meshcache.policy.compiled import Config, KeySpec, Policy

CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})

_OF_A_RANGE = frozenset({"if-range", "range"})
"""What is refreshed is a whole answer, whatever part of it the client was after."""

_NEGOTIATION = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Sent besides what the response is known to vary on: they describe the client, never who he is."""

_ALWAYS_SENT = _NEGOTIATION | RETARGETING_SPELLED
_NEVER_SENT = CREDENTIALS | _OF_A_RANGE

POPULAR: Final = 2
"""Hits in process memory since an entry came there, from which it is popular: worth a request before it is stale."""


def needs_its_caller(spec: KeySpec) -> bool:
    """Whether nothing under keys of this kind can be asked for without the credentials of the client who wants it."""
    return (
        spec.partitioned or bool(spec.cookies) or not CREDENTIALS.isdisjoint((*spec.headers, *spec.partition_headers))
    )


def may_refresh(stored: StoredResponse, spec: KeySpec) -> bool:
    """Whether the origin can be asked for this again without the client's credentials.

    What was given to an authorized request, lies behind a border of the caller's identity, or is chosen by a cookie,
    would come back different or refused, and what is chosen by a range not at all; such an answer is revalidated with
    the next client's own request instead.
    """
    if stored.authorized or needs_its_caller(spec):
        return False
    selected_by = {name for name, _ in stored.selecting}.union(spec.headers, spec.partition_headers)
    return not selected_by & (CREDENTIALS | _OF_A_RANGE)


def refresh_way(stored: StoredResponse, policy: Policy, config: Config, request: Request) -> str | None:
    """The Envoy cluster through which `stored` may be refreshed, empty for the one that needs no name; else None.

    Where the revision is the cluster that Envoy chose for the request, an entry is of that cluster, and only that one
    can refresh it: what chose it (a header, a weight) is Envoy's affair and would not choose it again for certain.
    """
    if not may_refresh(stored, policy.key):
        return None
    via = policy.refresh_via
    if config.revision.kind != "envoyCluster":
        return via
    cluster = request.cluster
    return cluster if cluster in config.refresh_clusters and via in ("", cluster) else None


def refresh_request(
    request: Request, stored: StoredResponse, spec: KeySpec, targets: tuple[str, ...], cluster: str
) -> RefreshRequest:
    """The request that refreshes `stored` through `cluster`, made from the client's `request` that asked for it.

    Conditional fields are not in it: the caller adds the stored validators.
    """
    wanted = {*spec.headers, *spec.partition_headers, *(name for name, _ in stored.selecting)}
    fields = [
        item
        for item in request.headers.fields
        if (item[0] in _ALWAYS_SENT or item[0] in wanted or meant(item[0]) in wanted) and item[0] not in _NEVER_SENT
    ]
    offered = capability(request.headers, targets)
    if offered is not None:
        fields.append(offered)
    return RefreshRequest(request.scheme, request.authority, request.path, Headers(fields), cluster)
