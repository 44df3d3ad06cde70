"""What one request of an experiment has shown: gathered on its way, told once at its end.

- **A hit** is an answer out of what was stored, for which the origin was not asked: what `cache-status` calls `hit`.
  One that the origin had to confirm or complete, or that stands in for its error, is none, nor is one that was waited
  for while another request fetched it.
- **Origin requests**: the request itself where it is forwarded, what the client waits for besides (the rest of an
  answer, an answer anew), and a background refresh that it has caused, however much later.
- **Origin bytes**: bytes of bodies that came for these.
- **An error**: the client gets a status of 500 or above, or an answer out of the cache that breaks off. Not the 504 to
  who wants nothing but what is cached. A client that leaves is no error, and an answer of the origin that breaks off
  cannot be told from that: Envoy says the same of both.
- **Age and staleness**: of what is served out of the cache, whether or not the origin was asked.
- **Cost saved**: what one origin request costs, less what the origin requests cost that there were; for an answer that
  came without any it is the whole, for a forwarded request nothing. A refresh takes back what its hit has saved.
- **Latency**: as the caller of `settle` measures it. Of a client that has left it is the time until he did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from meshcache.decisions import Decision, TierName
from meshcache.engine.outcome import Forward
from meshcache.experiment.observation import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshcache.engine.lookup import Candidate
    from meshcache.engine.outcome import Answer
    from meshcache.experiment.exposure import Exposure
    from meshcache.experiment.observation import Tally

_PLACES: Final = {TierName.HOT: 1, TierName.WARM: 2, TierName.COLD: 3}
_CONFIRMED: Final = frozenset({Decision.REVALIDATED, Decision.REFETCHED, Decision.COMPLETED, Decision.COLLAPSED})
"""What the origin has just said is not stale, whatever lifetime it gives it."""


class Account:
    """One request that counts, in one experiment or several."""

    __slots__ = ("_answered", "_asked", "_clock", "_cost", "_places", "_seen", "_settled")

    def __init__(self, places: Sequence[tuple[Tally, Exposure]], cost: float, clock: Callable[[], float]) -> None:
        """`cost` is that of one origin request; `clock` gives Unix seconds."""
        self._places = places
        self._cost = cost
        self._clock = clock
        self._seen = Observation()
        self._asked = False
        self._answered = False
        self._settled = False

    def answered(self, decision: Decision, candidate: Candidate, now: float) -> None:
        """The client gets what is stored."""
        seen, judgement = self._seen, candidate.judgement
        age = judgement.age(now)
        seen.tier = 0 if self._asked or decision is Decision.COLLAPSED else _PLACES[candidate.tier]
        seen.age = age
        seen.stale = decision not in _CONFIRMED and age >= judgement.lifetime
        self._answered = True

    def decided(self, outcome: Answer | Forward) -> None:
        """What is done with the request."""
        if isinstance(outcome, Forward):
            self.forwarded()
        else:
            self.failed(failed=outcome.status >= 500 and outcome.decision is not Decision.ONLY_IF_CACHED)

    def forwarded(self) -> None:
        """The request goes to the origin, whatever was decided before."""
        seen = self._seen
        seen.tier, seen.age, seen.stale = 0, 0.0, False
        self._answered = True
        self.asked()

    def asked(self) -> None:
        """The origin is asked for what the client waits for."""
        self._asked = True
        self._seen.origin_requests += 1

    def received(self, size: int) -> None:
        """So many bytes of body have come from the origin while the client waits."""
        self._seen.origin_bytes += size

    def caused(self, requests: int, size: int) -> None:
        """The origin is asked behind the client's back; possibly long after his answer."""
        if not self._settled:
            self._seen.origin_requests += requests
            self._seen.origin_bytes += size
            return
        for tally, exposure in self._places:
            tally.charge(exposure, requests, size, self._cost * requests)

    def failed(self, *, failed: bool = True) -> None:
        """Whether what the client gets is an error."""
        self._seen.error = failed

    def settle(self, latency: float) -> None:
        """The request is over after `latency` seconds: count it. Only the first call does."""
        if self._settled:
            return
        self._settled = True
        seen = self._seen
        seen.latency = latency
        if self._cost and (self._answered or seen.origin_requests):
            seen.cost_saved = self._cost * (self._answered - seen.origin_requests)
        now = self._clock()
        for tally, exposure in self._places:
            tally.count(exposure, seen, now)


def account_of(
    exposures: Sequence[Exposure], tallies: Mapping[str, Tally], cost: float, clock: Callable[[], float]
) -> Account | None:
    """The account of a request with these exposures; None where none of them is counted."""
    if len(exposures) == 1:
        # As it is as a rule.
        (one,) = exposures
        tally = tallies.get(one.experiment)
        return None if tally is None else Account(((tally, one),), cost, clock)
    places = [(tallies[one.experiment], one) for one in exposures if one.experiment in tallies]
    return Account(places, cost, clock) if places else None
