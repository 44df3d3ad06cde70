"""The marks of the filter in Envoy at the edge: proofs checked, grants and invalidations written for it.

Nothing of this is paid for a request without a mark but one look at whether it has one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from meshcache.wasm.labels import labels_of, labels_of_resources
from meshcache.wasm.marks import (
    ASK,
    DROP,
    FOR_COOKIES,
    KEEP,
    LATEST,
    Drop,
    Keep,
    fits,
    parse_ask,
    write_drop,
    write_keep,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from meshcache.engine.in_envoy import Grant
    from meshcache.message import Field, Request
    from meshcache.wasm.marks import Ask

_ASK: Final = frozenset({ASK})
MOST_DROPPED: Final = 64
"""Labels that one answer drops: for more, everything."""


class FilterMarks:
    """What a worker knows of the plans that filters work by. Belongs to one event loop, but for `admit`."""

    def __init__(self, told: Callable[[str, str], None] = lambda _why, _outcome: None) -> None:
        """`told` hears of every mark: why it was there, and what came of it."""
        self._told = told
        self._secret = b""
        self._plans: frozenset[bytes] = frozenset()

    def admit(self, secret: bytes, plans: frozenset[bytes]) -> None:
        """From now on these are the ids of the plans under which answers may be kept. From any thread.

        They are to be told after the policies behind them have been put in force: the proof of a request is checked
        before it is looked at which policies those are.
        """
        # In this order: under no plan is the secret of another incarnation looked at.
        self._plans = frozenset()
        self._secret = secret
        self._plans = plans

    def take(self, request: Request) -> None:
        """Take the mark off a request that has one. What it asks stays with the request, if it is proven."""
        value = request.headers.get(ASK) or ""
        request.headers = request.headers.without(_ASK)
        plans, secret = self._plans, self._secret
        if plans and secret:
            ask = parse_ask(value, secret)
            if ask is not None and ask.plan in plans:
                request.asked = ask
                return
        self._told("", "unproven")

    def keep(self, ask: Ask | None, grant: Grant | None) -> Field | None:
        """The field that tells the filter what it may keep; None for nothing."""
        if ask is None:
            return None
        # Since the mark was taken other policies may have been put in force, by which the plan is none any more.
        mark = None if grant is None or ask.plan not in self._plans else self._granted(ask, grant)
        self._told(ask.why, "nothing" if mark is None else "keep")
        return mark

    def _granted(self, ask: Ask, grant: Grant) -> Field | None:
        labels = labels_of(
            resource=grant.resource,
            route=grant.route,
            revision=grant.revision,
            subject=grant.subject,
            tags=grant.tags,
        )
        birth, drop_at = math.floor(grant.birth * 1000), _milliseconds(grant.drop_at)
        if birth < 0 or not fits(labels, grant.vary):
            return None
        renew_at = 0 if math.isinf(grant.renew_at) else _milliseconds(grant.renew_at)
        keep = Keep(
            birth,
            _milliseconds(grant.fresh_until),
            _milliseconds(grant.stale_until),
            drop_at,
            renew_at,
            FOR_COOKIES if grant.for_cookies else 0,
            labels,
            grant.vary,
        )
        return KEEP, write_keep(ask, keep, self._secret)

    def drop(self, ask: Ask | None, resources: Collection[bytes] | None) -> Field | None:
        """The field that tells the filter what an unsafe request has made invalid; None where it has not asked."""
        if ask is None or resources is None:
            return None
        self._told(ask.why, "drop" if resources else "nothing")
        labels = labels_of_resources(sorted(resources)) if len(resources) <= MOST_DROPPED else None
        return DROP, write_drop(ask, Drop(labels), self._secret)


def _milliseconds(seconds: float) -> int:
    return max(0, min(math.floor(min(seconds, 1e15) * 1000), LATEST))
