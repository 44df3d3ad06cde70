"""Whether what the cache gave out was permitted, and whether it gave what a good cache has to.

Of an answer out of the cache, `x-serial` tells the body and `x-state` the origin's answer that brought its fields up
to date last: the rules then say whether this very response, so old, may be given to this very request.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from model.origin import SECRET_FIELD, Made, Origin, State
from model.rules import (
    ORIGIN_ERRORS,
    Asked,
    Kept,
    Policy,
    age,
    lifetime,
    longest_lifetime,
    reusable,
    stands_in,
    storable,
)
from model.wording import date

if TYPE_CHECKING:
    from model.world import Flight, Got, Time

LONGEST_SURE = 290.0
"""Seconds for which an entry stays stored for sure: its residence by the policies of the histories."""

LONGEST_PAUSE = 30.0
"""Seconds for which an origin that has failed may be left alone while something stale can stand in."""


@dataclass
class Sure:
    """What must be stored: nothing has happened since that could have ended it."""

    made: Made
    state: State
    kept: Kept
    stored_at: float
    worker: int | None
    """The one that has to answer by it; None: all. Who knows the resource's older variants may not look past them."""


@dataclass
class Witness:
    """Sees every flight end, and judges."""

    origin: Origin
    time: Time
    policy: Policy = field(default_factory=Policy)
    sure: dict[str, list[Sure]] = field(default_factory=dict)
    changed: dict[str, list[int]] = field(default_factory=dict)
    """When an unsafe request had succeeded, by path, in the order of events."""
    flying: list[Flight] = field(default_factory=list)
    overlapped: set[int] = field(default_factory=set)
    failed: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)
    """When the origin has failed, by path, and whether it could not even be reached."""
    varied: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    """All values of `vary` that have been stored for a path."""
    policies: dict[int, Policy] = field(default_factory=dict)
    """The policy under which each flight has begun, which it keeps."""
    tally: Counter[str] = field(default_factory=Counter)
    """How often what was judged."""

    # -- what happens ------------------------------------------------------------------------------------------------

    def begins(self, flight: Flight) -> None:
        """A flight begins, for a path where others may be under way."""
        path = _path(flight)
        others = [other for other in self.flying if _path(other) == path]
        if others:
            self.overlapped.update(id(each) for each in (*others, flight))
        if flight.request.method not in ("GET", "HEAD"):
            self.sure.clear()
        self.flying.append(flight)
        self.policies[id(flight)] = self.policy

    def head_came(self, flight: Flight) -> None:
        """The head of the origin's answer has come."""
        reply = flight.reply
        assert reply is not None
        if isinstance(reply.known, State):
            reply.known.policy = self.policies[id(flight)]
            self._arrived(flight, reply.known)
        if reply.status in ORIGIN_ERRORS:
            self.failed.setdefault(_path(flight), []).append((self.time.now, not reply.from_origin))
        if flight.request.method not in ("GET", "HEAD"):
            self._unsafe(flight)

    def ends(self, flight: Flight) -> None:
        """A flight is over."""
        self.flying.remove(flight)
        policy = self.policies.pop(id(flight))
        overlapped = id(flight) in self.overlapped
        self.overlapped.discard(id(flight))
        reply = flight.reply
        state = reply.known if reply is not None and flight.came else None
        if state is not None and state.serial is not None:
            self.origin.made[state.serial].whole = flight.whole
        if flight.cut:
            self.failed.setdefault(_path(flight), []).append((self.time.now, False))
        if flight.request.method not in ("GET", "HEAD"):
            return
        self.tally["background" if flight.background else "requests"] += 1
        if flight.got is not None and not flight.left:
            self._judge(flight, flight.got, policy)
        if state is not None:
            self._remember(flight, state, policy, overlapped=overlapped)

    def _arrived(self, flight: Flight, state: State) -> None:
        """The times of an answer are known when it is there."""
        assert flight.reply is not None
        came = flight.came
        resource_date = state.fields.get("date")
        kept = replace(
            state.kept, came=came, date=math.floor(came) if resource_date is None else _seconds(resource_date, came)
        )
        state.kept = replace(
            kept,
            age=float(state.fields.get("age", 0)),
            expires=None if "expires" not in state.fields else _expires(state.fields["expires"]),
            modified=None if "last-modified" not in state.fields else _expires(state.fields["last-modified"]),
        )

    def _unsafe(self, flight: Flight) -> None:
        reply = flight.reply
        if reply is None or not flight.came or not reply.from_origin or not 200 <= reply.status < 400:
            return
        paths = [_path(flight)]
        paths += [value for name, value in reply.fields if value.startswith("/")]
        for path in paths:
            self.changed.setdefault(path, []).append(flight.came_order)

    # -- what must be stored now -------------------------------------------------------------------------------------

    def due(self, asked: Asked, worker: int, now: float) -> bool:
        """Whether a good cache has to answer this itself."""
        if asked.method not in ("GET", "HEAD"):
            return False
        for sure in self.sure.get(asked.path, ()):
            granted = lifetime(sure.kept, self.policy)
            if (
                granted is not None
                and sure.worker in (None, worker)
                and now - sure.stored_at < LONGEST_SURE
                and age(sure.kept, now) < granted
                and _selected(sure.state.vary, sure.state.asked, asked)
                and reusable(sure.kept, asked, self.policy, now, fresh_for=granted)
            ):
                return True
        return False

    def _remember(self, flight: Flight, state: State, policy: Policy, *, overlapped: bool) -> None:
        path = state.path
        known = self.sure.pop(path, [])
        if not flight.whole or flight.left or overlapped or flight.request.method != "GET":
            return
        if state.serial is not None:
            made, kept = self.origin.made[state.serial], state.kept
            # An error need not take the place of what can stand in for it.
            own = flight.reply is not None and flight.reply.from_origin and flight.got is None
            if not own or kept.status in ORIGIN_ERRORS:
                return
        elif flight.got is not None and flight.got.headers.get("x-state") == str(state.number):
            made = self.origin.made[int(flight.got.headers.get("x-serial") or 0)]
            kept = self._effective(made, state, flight.got)
        else:
            return
        granted = lifetime(kept, policy)
        if granted is None or age(kept, self.time.now) >= granted or not storable(state.asked, kept, policy):
            return
        if (
            not storable(made.first.asked, made.first.kept, made.first.policy)
            or state.vary != made.first.vary
            or "*" in state.vary
        ):
            return
        others = [
            sure
            for sure in known
            if sure.state.vary == state.vary and not _selected(state.vary, sure.state.asked, state.asked)
        ]
        self.varied.setdefault(path, set()).add(state.vary)
        worker = None if len(self.varied[path]) == 1 else flight.worker
        self.sure[path] = [*others, Sure(made, state, kept, self.time.now, worker)]

    # -- what may be given ---------------------------------------------------------------------------------------------

    def _judge(self, flight: Flight, got: Got, policy: Policy) -> None:
        asked: Asked = flight.facts
        if got.status == 504 and "x-serial" not in got.headers and asked.wanted.only_if_cached:
            assert flight.stage is None
            return
        made = self.origin.made.get(int(got.headers.get("x-serial") or 0))
        state = self.origin.states.get(int(got.headers.get("x-state") or 0))
        assert made is not None, f"no GET has made this: {asked} got {got}"
        assert state is not None, f"no answer of the origin: {asked} got {got}"
        now = self.time.now
        told = f"at {now} under {policy} {asked} got {got} of {made.first}, up to date by {state}"
        self._is_whole(flight, got, made, state, told)
        kept = self._effective(made, state, got)
        lowest, highest = (
            math.floor(age(kept, now)),
            math.floor(age(replace(kept, sent=min(kept.sent, flight.began)), now)),
        )
        assert lowest <= int(got.headers.get("age") or -1) <= highest, f"age: {told}"
        self.tally[self._kind(flight, kept, policy, now)] += 1
        if flight.stage is None:
            assert storable(_as_get(state.asked), kept, state.policy), f"not to be kept: {told}"
            fresh_for = longest_lifetime(kept, policy)
            if not reusable(kept, asked, policy, now, fresh_for=fresh_for):
                # The origin has failed just now, for someone else.
                failures = [cut_off for at, cut_off in self.failed.get(asked.path, ()) if at >= now - LONGEST_PAUSE]
                assert failures, f"not without the origin: {told}"
                assert stands_in(kept, asked, policy, now, disconnected=any(failures)), f"no stand-in: {told}"
                self.tally["stand-in for others"] += 1
            return
        reply = flight.reply
        assert reply is not None
        if reply.status in ORIGIN_ERRORS:
            assert storable(_as_get(state.asked), kept, state.policy), f"not to be kept: {told}"
            cut_off = not reply.from_origin
            assert stands_in(kept, asked, policy, now, disconnected=cut_off), f"no stand-in: {told}"
        else:
            by_head = reply.status == 200 == got.status and asked.method == "HEAD"
            assert reply.status == 304 or by_head, f"the origin's own answer is due: {told}"
            assert state is reply.known, f"the 304 is not heeded: {told}"

    def _kind(self, flight: Flight, kept: Kept, policy: Policy, now: float) -> str:
        if flight.stage is None:
            return "fresh" if age(kept, now) < longest_lifetime(kept, policy) else "stale"
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
        names = tuple(filter(None, (got.headers.get("vary") or "").split(", ")))
        assert "*" not in names or flight.stage is not None, f"vary: {told}"
        assert _selected(names, first.asked, asked) or _selected(names, state.asked, asked), f"vary: {told}"
        cookies = [value for name, value in got.headers if name == "set-cookie"]
        own = state.fields.get("set-cookie") if flight.reply is not None and state is flight.reply.known else None
        assert cookies == ([] if own is None else [own]), f"cookies: {told}"
        hidden = self.origin.saids[got.headers.get("cache-control")].hidden
        assert SECRET_FIELD not in got.headers or not hidden, f"a field that needs validation: {told}"
        assert got.status in (first.kept.status, 304), f"status: {told}"
        assert got.body == (made.body if got.status != 304 and asked.method == "GET" else b""), f"body: {told}"
        self._conditions(got, asked, told)

    @staticmethod
    def _conditions(got: Got, asked: Asked, told: str) -> None:
        """RFC 9110 section 13.1: 304 exactly for a client that has this already."""
        tags, since = asked.fields.get("if-none-match"), asked.fields.get("if-modified-since")
        etag, modified = got.headers.get("etag"), got.headers.get("last-modified")
        if not 200 <= got.status < 300 and got.status != 304:
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

    def _effective(self, made: Made, state: State, got: Got) -> Kept:
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
            expires=None if expires is None else _expires(expires),
            modified=None if modified is None else _expires(modified),
        )


def _as_get(asked: Asked) -> Asked:
    """What a response to HEAD says of a stored one, it says of that to GET (section 4.3.5)."""
    return replace(asked, method="GET")


def _selected(names: tuple[str, ...], stored_for: Asked, asked: Asked) -> bool:
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


def _path(flight: Flight) -> str:
    return flight.request.path.partition("?")[0]


def _seconds(text: str, otherwise: float) -> float:
    """What `model.wording.date` has written."""
    from meshcache.rfc.fields import http_date

    found = http_date(text, otherwise)
    return otherwise if found is None else found


def _expires(text: str) -> float:
    return _seconds(text, -math.inf) if text != date(-math.inf) else -math.inf
