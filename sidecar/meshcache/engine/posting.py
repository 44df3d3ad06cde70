"""Answers to POST that later requests by GET may be given (RFC 9110 section 9.3.3).

Such an answer says of itself that it is what GET would bring: it has a lifetime of its own and names the target in
`content-location`. It is stored as if GET had brought it. The POST is never answered from the cache, and what was
stored before is invalid as after any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.engine.admission import effective_method
from meshcache.engine.key import cache_key, chosen_key
from meshcache.engine.lookup import Lookup
from meshcache.policy.identity import OPEN
from meshcache.rfc.freshness import explicit_lifetime
from meshcache.rfc.invalidation import is_target
from meshcache.rfc.spelling import among
from meshcache.rfc.targeted import response_directives

if TYPE_CHECKING:
    from meshcache.message import Request, Response
    from meshcache.policy.snapshot import Snapshot
    from meshcache.tiers.stack import TierStack


def post_lookup(stack: TierStack, snapshot: Snapshot | None, request: Request, now: float) -> Lookup | None:
    """Where an answer to this POST would be stored, with the epochs from before it; None where nothing is cached.

    Waits for nobody: what a store that pods share would have to be asked stays unknown, and nothing is written there.
    """
    if snapshot is None:
        return None
    asked = request.as_get(request.headers)
    if effective_method(asked) != "GET":
        # A field makes the origin take it for another method than POST.
        return None
    selection = snapshot.select(asked)
    policy = selection.policy
    if policy is None or "GET" not in policy.key.methods or among(request.headers.names, policy.key.strip):
        return None
    border = snapshot.identities.border(request, policy.key) if policy.key.partitioned else OPEN
    if border is None:
        return None
    revision = snapshot.revision(request)
    if selection.by_key is None:
        key = cache_key(asked, policy.key, namespace=selection.namespace, revision=revision, border=border.parts)
    else:
        key, selection = chosen_key(asked, policy.key, selection.by_key, revision=revision, border=border.parts)
        policy = selection.policy or policy
    lookup = Lookup(stack, asked, selection, policy, key, revision, now, border.subject)
    epochs = stack.nowhere((), key.resource)
    if epochs is None:
        return None
    lookup.epochs = epochs
    return lookup


def answers_for_get(lookup: Lookup, request: Request, response: Response) -> bool:
    """Whether this answer to a POST is what GET would bring, by its own word."""
    headers = response.headers
    if response.status != 200 or not response.from_origin:
        return False
    if not is_target(
        headers.get("content-location"),
        scheme=request.headers.get("x-forwarded-proto") or request.scheme,
        authority=request.authority,
        path=request.path,
    ):
        return False
    control, expires = response_directives(headers, lookup.policy.freshness.targets)
    seconds = explicit_lifetime(control, expires=expires, date=headers.get("date"), response_time=lookup.now)
    return seconds is not None and seconds > 0
