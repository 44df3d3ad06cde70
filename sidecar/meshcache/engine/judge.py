"""What may be done with a stored response for a request: the heart of a look-up, as pure functions.

A `Judgement` is a stored response as one freshness policy sees it. It holds nothing of the time, so that it can be
kept beside the entry and used for every hit until another policy comes into force: judging a hit is then a
subtraction and a comparison.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.engine.lifetime import lifetimes
from meshcache.engine.ranges.parts import is_part
from meshcache.engine.sharing import directives_of, disguised, forbids, leaves_to_all
from meshcache.message import Headers
from meshcache.rfc import age as rfc_age
from meshcache.rfc import request as rfc_request
from meshcache.rfc import stale
from meshcache.rfc.cache_control import request_cache_control
from meshcache.rfc.fields import http_date
from meshcache.rfc.negotiation import content_codings
from meshcache.rfc.storing import shareable_despite_authorization
from meshcache.rfc.validators import can_be_validated

if TYPE_CHECKING:
    from meshcache.engine.lifetime import Lifetimes
    from meshcache.engine.records import StoredResponse
    from meshcache.policy.compiled import Freshness
    from meshcache.rfc.cache_control import CacheControl


class Use(Enum):
    """How a stored response may be used for a request."""

    FRESH = auto()
    STALE_WHILE_REVALIDATE = auto()
    ACCEPTED_STALE = auto()
    """The client takes it stale (`max-stale`)."""
    VALIDATE = auto()
    """Too old: only with the origin's consent."""
    VALIDATE_BY_REQUEST = auto()
    """Fresh or not, the client wants the origin's consent."""


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """A stored response under a policy. Times are seconds."""

    policy: Freshness
    response_time: float
    """Unix time at which it came."""
    initial_age: float
    """Its age when it came."""
    lifetime: float
    swr: float
    """How long past its lifetime it may be served while it is refreshed."""
    sie: float
    """How long past its lifetime it may stand in for an error of the origin."""
    disconnected: float
    """The same while the origin cannot be reached."""
    immutable: bool
    """While it is fresh, a reload needs no validation."""
    codings: tuple[str, ...]
    """The content codings that a client has to understand to read it."""
    always_validate: bool
    may_serve_stale: bool
    can_validate: bool
    """Whether the origin can be asked if it is still right."""
    for_authorized: bool
    """Whether it may answer requests that carry `authorization`."""
    for_cookies: bool
    """Whether it may answer requests with cookies that the key does not hold."""
    renew_from: float
    """Unix time from which it is renewed before it is stale, if it is popular; infinite where it is not."""

    def age(self, now: float) -> float:
        """Its age at `now`, never negative."""
        return rfc_age.current_age(initial_age=self.initial_age, response_time=self.response_time, now=now)

    def cut(self, stale_since: float, now: float) -> Judgement:
        """The same for what a purge has made stale at `stale_since`: its windows begin there, and it is not renewed.

        The response may have been on its way then, and younger than when it came.
        """
        age = max(0.0, self.initial_age + min(stale_since, now) - self.response_time)
        return msgspec.structs.replace(self, lifetime=min(self.lifetime, age), renew_from=inf)


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What the head of a response says to this cache under one policy. Times are seconds."""

    policy: Freshness
    headers: Headers
    control: CacheControl
    lifetimes: Lifetimes
    response_time: float
    """Unix time at which it came."""
    initial_age: float
    """Its age when it came."""


def read(
    policy: Freshness, *, status: int, headers: Headers, age: float, request_time: float, response_time: float
) -> Reading:
    """Read the head of a response that was asked for and came at these Unix times; `age` is what its `age` gave."""
    directives = directives_of(headers, policy)
    date = headers.get("date")
    return Reading(
        policy,
        headers,
        directives.control,
        lifetimes(policy, status=status, headers=headers, directives=directives, response_time=response_time),
        response_time,
        rfc_age.corrected_initial_age(
            age=age,
            date=None if date is None else http_date(date, response_time),
            request_time=request_time,
            response_time=response_time,
        ),
    )


def judge(stored: StoredResponse, policy: Freshness) -> Judgement:
    """How `policy` sees `stored`."""
    reading = read(
        policy,
        status=stored.status,
        headers=Headers(stored.fields),
        age=stored.initial_age,
        request_time=stored.request_time,
        response_time=stored.response_time,
    )
    return judged(stored, reading)


def judged(stored: StoredResponse, reading: Reading) -> Judgement:
    """The same with its head read already: what is stored of that says the same as the whole did."""
    policy, headers, control, (granted, by_origin), response_time, initial_age = msgspec.structs.astuple(reading)
    part = is_part(stored)
    forbidden = forbids(control) or disguised(
        _path(stored.uri), stored.status, _NOTHING_ASKED, headers, control, policy
    )
    if forbidden:
        granted = None
    elif stored.personal:
        granted = by_origin
    may_serve_stale = stale.may_serve_stale(control)
    # One error in place of another is of no use to anybody, and the origin would be asked less often if it is well.
    stands_in = stored.status not in stale.ERROR_STATUSES
    # What nobody gives a lifetime is stale from the start: it is there to be validated, and to stand in for an
    # error, but not to be refreshed behind the client's back.
    lifetime = 0.0 if granted is None else granted
    return Judgement(
        policy=policy,
        response_time=response_time,
        initial_age=initial_age,
        lifetime=lifetime,
        swr=0.0
        if granted is None or part
        else stale.stale_while_revalidate_window(control, policy.stale_while_revalidate),
        sie=stale.stale_if_error_window(control, policy.stale_if_error) if stands_in else 0.0,
        disconnected=stale.disconnected_window(control, policy.stale_if_unreachable) if stands_in else 0.0,
        immutable=control.immutable,
        codings=content_codings(headers.get("content-encoding")),
        # Fields of a qualified `no-cache` are not stored, so that the rest needs no validation.
        always_validate=control.no_cache or forbidden,
        may_serve_stale=may_serve_stale,
        can_validate=can_be_validated(stored.status, headers),
        for_authorized=shareable_despite_authorization(control) or "authorization" in policy.ignore,
        for_cookies=granted is None
        or granted <= (by_origin or 0.0)
        or policy.cookies_keyed
        or policy.person_keyed
        or leaves_to_all(control)
        or any(name == "cookie" for name, _ in stored.selecting),
        # A part is not refreshed: that would bring the whole, which nobody may want.
        renew_from=inf if part else _renew_from(policy, response_time, lifetime - initial_age),
    )


def _path(uri: str) -> str:
    """The path and query of a target URI."""
    return uri.partition("://")[2].partition("/")[2]


_NOTHING_ASKED: Final = Headers()


def _renew_from(policy: Freshness, response_time: float, left: float) -> float:
    """`left` is what of the lifetime was left as the response came: its last share is for renewing it."""
    if policy.refresh_ahead <= 0.0 or left <= 0.0:
        return inf
    return response_time + left * (1.0 - policy.refresh_ahead)


def withheld(judgement: Judgement, request: Headers) -> bool:
    """Whether the response is for others than who sends these header fields: what he may see, the origin decides."""
    return ("authorization" in request.names and not judgement.for_authorized) or (
        "cookie" in request.names and not judgement.for_cookies
    )


def use(judgement: Judgement, request: Headers, now: float) -> Use:
    """How the response may be used at `now` for a request with these header fields."""
    age = judgement.age(now)
    lifetime_left = judgement.lifetime - age
    names = request.names
    if ("authorization" in names or "cookie" in names) and withheld(judgement, request):
        return Use.VALIDATE_BY_REQUEST
    if "cache-control" in names:
        directives = request_cache_control(request)
        if rfc_request.refuses(directives, age=age, lifetime=judgement.lifetime, immutable=judgement.immutable):
            return Use.VALIDATE_BY_REQUEST
        if (
            lifetime_left <= 0.0
            and judgement.may_serve_stale
            and not judgement.always_validate
            and rfc_request.accepts_stale(directives, age=age, lifetime=judgement.lifetime)
        ):
            return Use.ACCEPTED_STALE
    if judgement.always_validate:
        return Use.VALIDATE
    if lifetime_left > 0.0:
        return Use.FRESH
    if judgement.swr > 0.0 and -lifetime_left <= judgement.swr:
        return Use.STALE_WHILE_REVALIDATE
    return Use.VALIDATE


def may_stand_in(judgement: Judgement, request: Headers, now: float, *, unreachable: bool = False) -> bool:
    """Whether the response may be sent in place of an error of the origin (RFC 5861 section 4).

    `unreachable` tells that the error is not the origin's own: the cache is disconnected, and may serve stale without
    anybody's leave (RFC 9111 section 4.2.4), unless the client insists on the origin. A client's own `stale-if-error`
    bounds either.
    """
    if judgement.always_validate or withheld(judgement, request):
        return False
    directives = request_cache_control(request)
    window = judgement.sie
    if unreachable and judgement.disconnected > window and not directives.no_cache:
        window = judgement.disconnected
    if directives.stale_if_error is not None and judgement.age(now) >= judgement.lifetime:
        window = min(window, directives.stale_if_error)
    return stale.within(window, lifetime=judgement.lifetime, age=judgement.age(now))
