"""The beginning of a fill: whether an answer of the origin is to be copied, whole or as a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcache.decisions import NoStoreReason
from meshcache.engine.epochs import UNKNOWN
from meshcache.engine.ranges.excerpts import part_to_keep
from meshcache.engine.ranges.parts import PARTIAL_CONTENT
from meshcache.engine.storing.arrival import Arrival
from meshcache.engine.storing.rules import unstorable
from meshcache.engine.storing.succession import keeps_its_place

if TYPE_CHECKING:
    from meshcache.engine.lookup import Candidate, Lookup
    from meshcache.engine.storing.fill import Fill
    from meshcache.engine.storing.keeper import Keeper
    from meshcache.message import Headers, Response


def begin_fill(
    keeper: Keeper,
    lookup: Lookup | None,
    replacing: Candidate | None,
    request: Headers,
    response: Response,
    now: float,
) -> Fill | NoStoreReason:
    """A copy of the response to a request with these header fields, to be stored in place of `replacing`.

    Or why it is not to be stored.
    """
    if lookup is None or lookup.epochs is UNKNOWN:
        # The look-up did not come to an end: nothing tells an invalidation that happens from now on.
        return NoStoreReason.NO_TIER
    arrival = Arrival(lookup.target(), response, now)
    part = part_to_keep(lookup, request, response, now) if response.status == PARTIAL_CONTENT else None
    reason = unstorable(arrival, part=part is not None)
    if reason is not None:
        return reason
    if replacing is not None and keeps_its_place(replacing, response.status, now):
        # Whatever lifetime it claims: what is good may stand in for the errors of others.
        return NoStoreReason.BETTER_STORED
    fill = keeper.begin(arrival, replacing, part)
    return fill if fill.fits() else NoStoreReason.TOO_LARGE
