"""Which of two responses for one key stays, when both may be stored: the newer one, and a good one before an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from meshcache.decisions import NoStoreReason
from meshcache.engine.judge import judge
from meshcache.message import Headers
from meshcache.rfc.fields import http_date
from meshcache.rfc.stale import ERROR_STATUSES, within

if TYPE_CHECKING:
    from meshcache.engine.judge import Judgement
    from meshcache.engine.lookup import Candidate
    from meshcache.engine.records import StoredResponse
    from meshcache.policy.compiled import Freshness

SLOW_SECONDS: Final = 1.0
"""A response that took longer, from its request to the end of its body, may have been overtaken by another."""


def is_older(one: StoredResponse, other: StoredResponse) -> bool:
    """Whether `other` is the more recent of two responses for the same thing (RFC 9111 section 4).

    What was asked for after the other had come is newer, whatever clocks of origins say. Of two that were under way
    together the one with the later `date` is, else the one whose head came later; in doubt neither.
    """
    if other.request_time > one.response_time:
        return True
    if one.request_time > other.response_time:
        return False
    mine, its = _date(one), _date(other)
    if mine is not None and its is not None and mine != its:
        return mine < its
    return one.response_time < other.response_time


def outlives(judgement: Judgement, now: float) -> bool:
    """Whether a stored response may still be used at `now`, be it in place of an error of the origin.

    What has to be validated at each use is of use no longer than that, too: in place of an error it never is.
    """
    if judgement.always_validate:
        return False
    age = judgement.age(now)
    return age < judgement.lifetime or within(judgement.sie, lifetime=judgement.lifetime, age=age)


def keeps_its_place(candidate: Candidate, status: int, now: float) -> bool:
    """Whether what was found stays stored when an answer of this status comes: good, and of use still at `now`."""
    return gives_way(status, candidate.stored.status) and outlives(candidate.judgement, now)


class Successor(NamedTuple):
    """An answer that is to be stored, maybe in the place of another one."""

    record: StoredResponse
    freshness: Freshness
    """By which what it would replace is judged."""
    undated: bool = False
    """It is what was stored before, confirmed by a response that does not say when that was so.

    Such a one speaks of what was stored before alone (RFC 9111 section 4.3.4), and brings nothing back in place of what
    has come since it was asked for.
    """

    def yields(self, held: StoredResponse, now: float) -> NoStoreReason | None:
        """Why it must not be stored in place of `held`, which is stored under the same key; None when it may."""
        record = self.record
        if is_older(record, held) or (self.undated and held.response_time > record.request_time):
            return NoStoreReason.OLDER
        if gives_way(record.status, held.status) and outlives(judge(held, self.freshness), now):
            return NoStoreReason.BETTER_STORED
        return None


_OF_ITS_REQUEST: Final = frozenset({400, 406, 412, 426})


def gives_way(status: int, held: int) -> bool:
    """Whether an answer of this status is not to take the place of a stored one of the status `held`.

    So it is with an error of the origin, and with one that may be due to what is wrong with its request: to fields that
    no key holds, which any client can send to have the answer of all others replaced.
    """
    if is_error(status):
        return not is_error(held)
    return status in _OF_ITS_REQUEST and held not in _OF_ITS_REQUEST and not is_error(held)


def may_give_way(status: int) -> bool:
    """Whether there is any that it does not take the place of."""
    return is_error(status) or status in _OF_ITS_REQUEST


def is_error(status: int) -> bool:
    """Whether this is an error of the origin, for which something stored may stand in (RFC 5861 section 4)."""
    return status in ERROR_STATUSES


def _date(stored: StoredResponse) -> float | None:
    date = Headers(stored.fields).get("date")
    return None if date is None else http_date(date, stored.response_time)
