"""How a stored response becomes the answer to one request: whole, in part, or as 304 to who holds it already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshcache.decisions import Decision
from meshcache.engine import report
from meshcache.engine.outcome import Answer
from meshcache.engine.ranges.excerpts import excerpt
from meshcache.engine.records import StoredResponse
from meshcache.rfc.validation import not_modified

if TYPE_CHECKING:
    from meshcache.decisions import TierName
    from meshcache.engine.lookup import Candidate, Lookup
    from meshcache.message import Headers


_NOTHING_CACHED: Final = StoredResponse(
    key=b"",
    selecting=(),
    status=504,
    fields=(("cache-control", "no-store"),),
    request_time=0.0,
    response_time=0.0,
    initial_age=0.0,
    authorized=False,
    body=b"",
)


def nothing_cached(lookup: Lookup) -> Answer:
    """The answer to `only-if-cached` where nothing stored may be used: 504 (RFC 9111 section 5.2.1.7)."""
    decision = Decision.ONLY_IF_CACHED
    return Answer(decision, _NOTHING_CACHED, None, None, report.refused(lookup, decision))


def answer(lookup: Lookup, decision: Decision, candidate: Candidate, request: Headers, now: float) -> Answer:
    """The answer to a request with these header fields at `now` (Unix seconds)."""
    stored, judgement = candidate.stored, candidate.judgement
    age = judgement.age(now)
    unmodified = ("if-none-match" in request.names or "if-modified-since" in request.names) and not_modified(
        request, stored.fields, stored.status, response_time=stored.response_time
    )
    # Conditions come before ranges (RFC 9110 section 13.2.2).
    part = None if lookup.wanted is None or unmodified else excerpt(stored, lookup.wanted, request.get("if-range"))
    return Answer(
        decision,
        stored,
        candidate.tier,
        int(age),
        report.hit(lookup, decision, candidate.tier, judgement, age),
        unmodified,
        part,
        rendered=None if candidate.entry is None else candidate.entry.rendered,
    )


NO_ANSWER: Final = StoredResponse(
    key=b"",
    selecting=(),
    status=502,
    fields=(("content-type", "text/plain"), ("cache-control", "no-store")),
    request_time=0.0,
    response_time=0.0,
    initial_age=0.0,
    authorized=False,
    body=b"The origin has confirmed an answer that is not the one it was asked about. Please try again.\n",
)
"""Sent when a 304 speaks of something that neither this cache nor the client holds.

The 304 would mean nothing to the client, and what is stored is not what the origin means: it must not be used (RFC 9111
section 4.3.4). Asked again, without the stored validator, the origin gives its whole answer.
"""


def no_answer(lookup: Lookup, tier: TierName, *, by_request: bool, status: int) -> Answer:
    """`NO_ANSWER` to a request, after the origin has said `status`."""
    said = report.asked(lookup, Decision.MISMATCH, tier, by_request=by_request, status=status)
    return Answer(Decision.MISMATCH, NO_ANSWER, tier, 0, said)
