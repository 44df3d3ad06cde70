"""What has happened, who has to judge of it, and what a good cache has to answer by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from model.judge import Judge, Purged, expiry_of, path_of, seconds_of, selected, visitors_own
from model.origin import Made, Origin, State
from model.rules import ORIGIN_ERRORS, Asked, Kept, Policy, age, lifetime, reusable, storable

if TYPE_CHECKING:
    from collections.abc import Callable

    from model.around import Time
    from model.flights import Flight

LONGEST_SURE = 290.0
"""Seconds for which an entry stays stored for sure: its residence by the policies of the histories."""


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
    judge: Judge
    policy: Policy = field(default_factory=Policy)
    sure: dict[tuple[str, str | None], list[Sure]] = field(default_factory=dict)
    flying: list[Flight] = field(default_factory=list)
    overlapped: set[int] = field(default_factory=set)
    all_know: Callable[[], bool] = lambda: True
    """Whether every worker has heard of every purge; one that has not gives nothing out, and keeps nothing."""
    informed: set[int] = field(default_factory=set)
    """The flights that began when all knew."""
    varied: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    """All values of `vary` that have been stored for a path."""
    policies: dict[int, Policy] = field(default_factory=dict)
    """The policy under which each flight has begun, which it keeps."""

    # -- what happens ------------------------------------------------------------------------------------------------

    def begins(self, flight: Flight) -> None:
        """A flight begins, for a path where others may be under way."""
        path = path_of(flight)
        others = [other for other in self.flying if path_of(other) == path]
        if others:
            self.overlapped.update(id(each) for each in (*others, flight))
        if flight.request.method not in ("GET", "HEAD"):
            self.sure.clear()
        self.flying.append(flight)
        self.policies[id(flight)] = self.policy
        if self.all_know():
            self.informed.add(id(flight))

    def purged(self, order: int, paths: frozenset[str], *, soft: bool) -> None:
        """A purge has been made, and every worker knows of it."""
        self.judge.purges.append(Purged(order, self.time.now, paths, soft))
        self.sure = {key: sure for key, sure in self.sure.items() if key[0] not in paths}

    def head_came(self, flight: Flight) -> None:
        """The head of the origin's answer has come."""
        reply = flight.reply
        assert reply is not None
        if isinstance(reply.known, State):
            reply.known.policy = self.policies[id(flight)]
            self._arrived(flight, reply.known)
        if reply.status in ORIGIN_ERRORS:
            self.judge.failed.setdefault(path_of(flight), []).append((self.time.now, not reply.from_origin))
        if flight.request.method not in ("GET", "HEAD"):
            self._unsafe(flight)

    def ends(self, flight: Flight) -> None:
        """A flight is over."""
        self.flying.remove(flight)
        policy = self.policies.pop(id(flight))
        informed = id(flight) in self.informed
        self.informed.discard(id(flight))
        overlapped = id(flight) in self.overlapped
        self.overlapped.discard(id(flight))
        reply = flight.reply
        state = reply.known if reply is not None and flight.came else None
        if state is not None and state.serial is not None:
            self.origin.made[state.serial].whole = flight.whole
        if flight.cut:
            self.judge.failed.setdefault(path_of(flight), []).append((self.time.now, False))
        if flight.request.method not in ("GET", "HEAD"):
            return
        self.judge.tally["background" if flight.background else "requests"] += 1
        if flight.got is not None and not flight.left:
            self.judge.judge(flight, flight.got, policy)
        if state is not None:
            self._remember(flight, state, policy, sure=informed and not overlapped)

    def _arrived(self, flight: Flight, state: State) -> None:
        """The times of an answer are known when it is there."""
        assert flight.reply is not None
        came = flight.came
        resource_date = state.fields.get("date")
        kept = replace(
            state.kept, came=came, date=math.floor(came) if resource_date is None else seconds_of(resource_date, came)
        )
        state.kept = replace(
            kept,
            age=float(state.fields.get("age", 0)),
            expires=None if "expires" not in state.fields else expiry_of(state.fields["expires"]),
            modified=None if "last-modified" not in state.fields else expiry_of(state.fields["last-modified"]),
        )

    def _unsafe(self, flight: Flight) -> None:
        reply = flight.reply
        if reply is None or not flight.came or not reply.from_origin or not 200 <= reply.status < 400:
            return
        paths = [path_of(flight)]
        paths += [value for name, value in reply.fields if value.startswith("/")]
        for path in paths:
            self.judge.changed.setdefault(path, []).append(flight.came_order)

    # -- what must be stored now -------------------------------------------------------------------------------------

    def due(self, asked: Asked, worker: int, now: float) -> bool:
        """Whether a good cache has to answer this itself."""
        if asked.method not in ("GET", "HEAD") or not self.all_know():
            return False
        for sure in self.sure.get((asked.path, asked.tenant), ()):
            granted = self._granted(sure.made, sure.state, sure.kept, self.policy)
            if (
                granted is not None
                and sure.worker in (None, worker)
                and now - sure.stored_at < LONGEST_SURE
                and age(sure.kept, now) < granted
                and selected(sure.state.vary, sure.state.asked, asked)
                and reusable(sure.kept, asked, self.policy, now, fresh_for=granted)
            ):
                return True
        return False

    def _granted(self, made: Made, state: State, kept: Kept, policy: Policy) -> float | None:
        """The lifetime that it has for sure."""
        found = [lifetime(kept, policy, personal=may_be) for may_be in visitors_own(made, state)]
        return None if None in found else min(granted for granted in found if granted is not None)

    def _remember(self, flight: Flight, state: State, policy: Policy, *, sure: bool) -> None:
        path = state.path
        known = self.sure.pop((path, state.asked.tenant), [])
        if (
            not flight.whole
            or flight.left
            or not sure
            or state.asked.span is not None
            or flight.request.method != "GET"
        ):
            return
        if state.serial is not None:
            made, kept = self.origin.made[state.serial], state.kept
            # An error need not take the place of what can stand in for it.
            own = flight.reply is not None and flight.reply.from_origin and flight.got is None
            if not own or kept.status in ORIGIN_ERRORS:
                return
        elif flight.got is not None and flight.got.headers.get("x-state") == str(state.number):
            made = self.origin.made[int(flight.got.headers.get("x-serial") or 0)]
            kept = self.judge.effective(made, state, flight.got)
        else:
            return
        if any(purge.order > state.order and path in purge.paths for purge in self.judge.purges):
            return
        granted = self._granted(made, state, kept, policy)
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
            if sure.state.vary == state.vary and not selected(state.vary, sure.state.asked, state.asked)
        ]
        self.varied.setdefault(path, set()).add(state.vary)
        worker = None if len(self.varied[path]) == 1 else flight.worker
        self.sure[path, state.asked.tenant] = [*others, Sure(made, state, kept, self.time.now, worker)]
