"""Whether an answer out of the cache was permitted.

Its `x-serial` tells the body and `x-state` the origin's answer that brought its fields up to date last: the rules then
say whether this very response, so old, may be given to this very request.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from meshcache.rfc.fields import http_date
from model.origin import SECRET_FIELD, Made, Origin, State
from model.rules import (
    ORIGIN_ERRORS,
    Asked,
    Kept,
    Policy,
    age,
    longest_lifetime,
    personal,
    reusable,
    slice_of,
    stands_in,
    storable,
    until_purged,
)
from model.wording import date

if TYPE_CHECKING:
    from model.around import Time
    from model.flights import Flight, Got

LONGEST_PAUSE = 30.0
"""Seconds for which an origin that has failed may be left alone while something stale can stand in."""


@dataclass(frozen=True)
class Purged:
    """A purge that has been made."""

    order: int
    at: float
    paths: frozenset[str]
    soft: bool


@dataclass
class Judge:
    """Knows what has happened to the origin and to what is stored, and judges answers by it."""

    origin: Origin
    time: Time
    changed: dict[str, list[int]] = field(default_factory=dict)
    """When an unsafe request had succeeded, by path, in the order of events."""
    purges: list[Purged] = field(default_factory=list)
    failed: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)
    """When the origin has failed, by path, and whether it could not even be reached."""
    tally: Counter[str] = field(default_factory=Counter)
    """How often what was judged."""

    def judge(self, flight: Flight, got: Got, policy: Policy) -> None:
        asked: Asked = flight.facts
        if got.status == 504 and "x-serial" not in got.headers and asked.wanted.only_if_cached:
            assert flight.stage is None
            return
        if got.status == 416:
            # It says nothing of the response but its length.
            lengths = {len(each.body) for each in self.origin.made.values() if each.first.path == asked.path}
            spans = {length: slice_of(asked.span or (0, None), length) for length in lengths}
            outside = {f"bytes */{length}" for length, (start, end) in spans.items() if start >= end}
            assert got.headers.get("content-range") in outside, f"there is such a part: {asked} got {got}"
            return
        made = self.origin.made.get(int(got.headers.get("x-serial") or 0))
        state = self.origin.states.get(int(got.headers.get("x-state") or 0))
        assert made is not None, f"no GET has made this: {asked} got {got}"
        assert state is not None, f"no answer of the origin: {asked} got {got}"
        now = self.time.now
        told = f"at {now} under {policy} {asked} got {got} of {made.first}, up to date by {state}"
        self._is_whole(flight, got, made, state, told)
        kept = self.effective(made, state, got)
        lowest, highest = (
            math.floor(age(kept, now)),
            math.floor(age(replace(kept, sent=min(kept.sent, flight.began)), now)),
        )
        assert lowest <= int(got.headers.get("age") or -1) <= highest, f"age: {told}"
        # Of several the newest counts (a promise of ours): it is made stale anew.
        soft = [purge.at for purge in self.purges if purge.soft and self._concerns(purge, flight, state)]
        longest = max(longest_lifetime(kept, policy, personal=may_be) for may_be in visitors_own(made, state))
        fresh_for = until_purged(kept, longest, max(soft, default=None))
        self.tally[self._kind(flight, kept, fresh_for, now)] += 1
        if flight.stage is None:
            assert storable(_as_get(state.asked), kept, state.policy), f"not to be kept: {told}"
            if not reusable(kept, asked, policy, now, fresh_for=fresh_for):
                # The origin has failed just now, for someone else.
                failures = [cut_off for at, cut_off in self.failed.get(asked.path, ()) if at >= now - LONGEST_PAUSE]
                assert failures, f"not without the origin: {told}"
                assert stands_in(kept, asked, policy, now, fresh_for=fresh_for, disconnected=any(failures)), (
                    f"no stand-in: {told}"
                )
                self.tally["stand-in for others"] += 1
            return
        reply = flight.reply
        assert reply is not None
        if reply.status in ORIGIN_ERRORS:
            assert storable(_as_get(state.asked), kept, state.policy), f"not to be kept: {told}"
            cut_off = not reply.from_origin
            assert stands_in(kept, asked, policy, now, fresh_for=fresh_for, disconnected=cut_off), (
                f"no stand-in: {told}"
            )
        else:
            by_head = reply.status == 200 == got.status and asked.method == "HEAD"
            assert reply.status == 304 or by_head, f"the origin's own answer is due: {told}"
            assert state is reply.known, f"the 304 is not heeded: {told}"

    @staticmethod
    def _concerns(purge: Purged, flight: Flight, state: State) -> bool:
        """Whether it was made after the origin said this, and before the client asked."""
        return state.path in purge.paths and state.order < purge.order < flight.order

    @staticmethod
    def _kind(flight: Flight, kept: Kept, fresh_for: float, now: float) -> str:
        if flight.stage is None:
            return "fresh" if age(kept, now) < fresh_for else "stale"
        return "validated" if flight.reply is not None and flight.reply.status == 304 else "stand-in"

    def _is_whole(self, flight: Flight, got: Got, made: Made, state: State, told: str) -> None:
        asked: Asked = flight.facts
        first = made.first
        assert first.path == state.path == asked.path, f"another target's: {told}"
        assert made.whole, f"cut off, and stored: {told}"
        assert storable(first.asked, first.kept, first.policy), f"not to be stored: {told}"
        assert state is first or (state.serial is None and _same(made, state)), f"not of this response: {told}"
        changes = [at for at in self.changed.get(asked.path, ()) if at < flight.order]
        assert max(first.order, state.order) > max(changes, default=0), f"invalidated: {told}"
        hard = [purge for purge in self.purges if not purge.soft and self._concerns(purge, flight, state)]
        assert not hard, f"purged: {told}"
        born = [purge for purge in self.purges if not purge.soft and self._concerns(purge, flight, first)]
        assert not born, f"purged, and validated since: {told}"
        assert first.asked.tenant == asked.tenant, f"another tenant's: {told}"
        names = tuple(filter(None, (got.headers.get("vary") or "").split(", ")))
        assert "*" not in names or flight.stage is not None, f"vary: {told}"
        assert selected(names, first.asked, asked) or selected(names, state.asked, asked), f"vary: {told}"
        cookies = [value for name, value in got.headers if name == "set-cookie"]
        own = state.fields.get("set-cookie") if flight.reply is not None and state is flight.reply.known else None
        assert cookies == ([] if own is None else [own]), f"cookies: {told}"
        hidden = self.origin.saids[got.headers.get("cache-control")].hidden
        assert SECRET_FIELD not in got.headers or not hidden, f"a field that needs validation: {told}"
        if asked.span is None or got.status != 206:
            assert got.status in (first.kept.status, 304), f"status: {told}"
            assert got.body == (made.body if got.status != 304 and asked.method == "GET" else b""), f"body: {told}"
        else:
            self._part(got, made, asked.span, told)
        self._conditions(got, asked, told)

    @staticmethod
    def _part(got: Got, made: Made, span: tuple[int | None, int | None], told: str) -> None:
        """RFC 9110 section 14.2: exactly the bytes that were asked for, of what is a success as a whole."""
        start, end = slice_of(span, len(made.body))
        assert made.first.kept.status == 200, f"a part of no success: {told}"
        assert start < end, f"there is no such part: {told}"
        assert got.body == made.body[start:end], f"another part: {told}"
        assert got.headers.get("content-range") == f"bytes {start}-{end - 1}/{len(made.body)}", f"part: {told}"

    @staticmethod
    def _conditions(got: Got, asked: Asked, told: str) -> None:
        """RFC 9110 section 13.1: 304 exactly for a client that has this already."""
        tags, since = asked.fields.get("if-none-match"), asked.fields.get("if-modified-since")
        etag, modified = got.headers.get("etag"), got.headers.get("last-modified")
        if (not 200 <= got.status < 300 and got.status != 304) or asked.span is not None:
            return
        if tags is not None:
            matches = etag is not None and etag.removeprefix("W/") in [
                tag.removeprefix("W/") for tag in tags.split(", ")
            ]
            assert (got.status == 304) == matches, f"if-none-match: {told}"
        elif since is None:
            assert got.status != 304, f"304 to a client that has nothing: {told}"
        elif modified is not None and got.status == 200:
            assert modified > since or modified != since, f"if-modified-since: {told}"

    def effective(self, made: Made, state: State, got: Got) -> Kept:
        """The response as the client sees it: its fields from `state`, or from one before where that has none."""
        line = [known for known in made.states if known.number < state.number] + [state]
        for name in ("cache-control", "expires", "etag", "last-modified"):
            value = got.headers.get(name)
            allowed = {state.fields[name]} if name in state.fields else {known.fields.get(name) for known in line}
            assert value in allowed or (got.status == 304 and value is None), f"{name} of {got} is none of {allowed}"
        cc = got.headers.get("cache-control")
        expires, modified = got.headers.get("expires"), got.headers.get("last-modified")
        return replace(
            state.kept,
            status=made.first.kept.status,
            said=self.origin.saids[cc],
            expires=None if expires is None else expiry_of(expires),
            modified=None if modified is None else expiry_of(modified),
        )


def visitors_own(made: Made, state: State) -> set[bool]:
    """Whether it counts as one visitor's own. What a 304 to another visitor makes of that is left open."""
    return {personal(one.asked, one.kept.said, sets_cookie="set-cookie" in one.fields) for one in (made.first, state)}


def _as_get(asked: Asked) -> Asked:
    """What a response to HEAD says of a stored one, it says of that to GET (section 4.3.5)."""
    return replace(asked, method="GET")


def selected(names: tuple[str, ...], stored_for: Asked, asked: Asked) -> bool:
    """RFC 9111 section 4.1."""
    return all(stored_for.fields.get(name) == asked.fields.get(name) for name in names)


def _same(made: Made, state: State) -> bool:
    """Whether `state` speaks of `made`, by its validators (RFC 9111 sections 4.3.4 and 4.3.5)."""
    if state.number < made.first.number:
        return False
    etag, modified = state.fields.get("etag"), state.fields.get("last-modified")
    if etag is None and modified is None and state.asked.method == "HEAD":
        return True
    for known in made.states:
        if etag is not None and known.fields.get("etag") == etag:
            break
        if etag is None and modified is not None and known.fields.get("last-modified") == modified:
            break
    else:
        return False
    if state not in made.states:
        made.states.append(state)
    return True


def path_of(flight: Flight) -> str:
    return flight.request.path.partition("?")[0]


def seconds_of(text: str, otherwise: float) -> float:
    """What `model.wording.date` has written."""
    found = http_date(text, otherwise)
    return otherwise if found is None else found


def expiry_of(text: str) -> float:
    return seconds_of(text, -math.inf) if text != date(-math.inf) else -math.inf
