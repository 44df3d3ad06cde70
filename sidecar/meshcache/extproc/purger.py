"""Purges as operators make them: rules put in effect in this pod and in all others, and what came of it.

The rules are in the pod's own log before anything else. A shared store that is away does not keep a purge from this
pod's workers; the fleet is owed the rule, and gets it as soon as the store is back.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from meshcache.engine.purge_state import NUMBER_BITS, Header, PurgeState
from meshcache.engine.purge_state import generation as generation_of
from meshcache.engine.purges import PurgeKind, Rule, values_of
from meshcache.policy.identity import subject_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from meshcache.extproc.fleet_follower import FleetFollower
    from meshcache.extproc.purge_book import PurgeBook
    from meshcache.observe.metrics import Metrics
    from meshcache.tiers.sweeping import Job, Sweeper

PATIENCE: Final = 1.0
"""Seconds after which who has not applied a rule is named."""
COUNT_PATIENCE: Final = 5.0
"""Seconds after which a purge no longer waits for the count of entries; what is dead is removed all the same."""
MOST_RULES_AT_ONCE: Final = 1000
_REMEMBERED: Final = 256
_REPORTS: Final = 64
_POLL: Final = 0.02


class PurgeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be purged: all that any of these names."""

    urls: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    """People, as the claim or certificate names them; neither logged nor stored but as a keyed hash."""
    revisions: tuple[str, ...] = ()
    all: bool = False
    soft: bool = False
    """What matches becomes stale rather than dead."""

    def rules(self, secret: Callable[[], bytes], now: float, uid: Callable[[], str]) -> list[Rule]:
        """The rules. Raises `ValueError` with a sentence for values that make no sense, and for none at all.

        `secret` is only asked for where a subject is named.
        """
        by_kind: Mapping[PurgeKind, Sequence[str]] = {
            PurgeKind.URL: self.urls,
            PurgeKind.PREFIX: self.prefixes,
            PurgeKind.TAG: self.tags,
            PurgeKind.ROUTE: self.routes,
            PurgeKind.SUBJECT: [subject_hash(secret(), subject).hex() if subject else "" for subject in self.subjects],
            PurgeKind.REVISION: self.revisions,
            PurgeKind.ALL: [""] if self.all else [],
        }
        chosen = [(kind, values_of(kind, text)) for kind, texts in by_kind.items() for text in texts]
        if not chosen:
            raise ValueError("nothing is named that is to be purged")
        if len(chosen) > MOST_RULES_AT_ONCE:
            raise ValueError(f"more than {MOST_RULES_AT_ONCE} values at once")
        meant = dict.fromkeys((kind, value) for kind, values in chosen for value in values)
        return [Rule(kind, value, self.soft, now, uid()) for kind, value in meant]


class PurgeResult(msgspec.Struct, frozen=True, rename="camel"):
    """What has come of a purge so far."""

    id: str
    """To ask for it again."""
    generation: int
    """Number of its last rule in this pod's log."""
    entries: int
    """Stored entries that matched, in the tiers that this pod reaches; each counts once, wherever it is held."""
    counted: bool
    """Whether all of these tiers have been looked through: if not, there may be more."""
    acknowledged: tuple[str, ...]
    """Workers of this pod and other pods that have applied it."""
    pending: tuple[str, ...]
    """Those that have not."""
    widened: bool
    """The disk took no rule, so that everything this pod has stored is purged instead."""
    notes: tuple[str, ...] = ()


class Member(Protocol):
    """A worker as a purge sees it; `extproc.child.WorkerProcess` is one."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it may answer requests."""
        ...

    @property
    def applied(self) -> int:
        """Generation of the newest rule that it has said to have applied."""
        ...

    def tell(self, generation: int) -> None:
        """There are new rules."""
        ...


@dataclass
class _Purge:
    id: str
    generation: int
    """Of the pod."""
    number: int
    uids: frozenset[str]
    job: Job
    widened: bool
    hot: set[bytes] = field(default_factory=set)
    counting: set[str] = field(default_factory=set)
    """Names of workers that have not counted yet."""


class Purger:
    """Makes purges, one after the other, and tells how they stand."""

    def __init__(
        self,
        book: PurgeBook,
        members: Callable[[], Sequence[Member]],
        sweeper: Sweeper,
        fleet: FleetFollower | None,
        secret: Callable[[], bytes],
        metrics: Metrics,
        *,
        audit: Callable[[str, Mapping[str, Any]], None] = lambda _action, _fields: None,
        wall_clock: Callable[[], float] = time.time,
        filters: Callable[[int], tuple[list[str], list[str]]] = lambda _generation: ([], []),
    ) -> None:
        """`secret` is the installation's, for the hash of subjects; `fleet` what this pod shares with others.

        `filters` names those in Envoy that have applied the rules of a generation, and those that have not.
        """
        self._filters = filters
        self._book = book
        self._members = members
        self._sweeper = sweeper
        self._fleet = fleet
        self._secret = secret
        self._metrics = metrics
        self._audit = audit
        self._wall_clock = wall_clock
        self._purges: OrderedDict[str, _Purge] = OrderedDict()
        self._reports: deque[tuple[str, int, int, Sequence[bytes]]] = deque(maxlen=_REPORTS)
        """A worker may be done before the purge that it counted for is noted here."""

    async def purge(self, request: PurgeRequest, who: Mapping[str, Any]) -> PurgeResult:
        """Put it in effect; returns when everybody has applied it, or after a second with the names of the others.

        `who` goes into the audit log. Raises `ValueError` with a sentence for a request that makes no sense.
        """
        rules = request.rules(self._secret, self._wall_clock(), lambda: secrets.token_hex(8))
        # To its end, once begun, whether or not its caller waits for it.
        return await asyncio.shield(asyncio.create_task(self._purge(request, rules, who)))

    async def _purge(self, request: PurgeRequest, rules: list[Rule], who: Mapping[str, Any]) -> PurgeResult:
        began = asyncio.get_running_loop().time()
        purge = await self._put_in_effect(rules)
        what = [{"by": str(rule.kind), "value": rule.value} for rule in rules]
        await self._note(
            "purge", id=purge.id, who=who, what=what, soft=request.soft, generation=purge.number, widened=purge.widened
        )
        mode = "soft" if request.soft else "hard"
        for kind, count in _counts(rules).items():
            self._metrics.inc("purges_total", (kind, mode), count)
        await self._wait(purge, began + PATIENCE, began + COUNT_PATIENCE)
        result = await self.result(purge.id)
        assert result is not None  # noqa: S101 - it was kept just now
        self._metrics.inc("purged_entries_total", (), result.entries)
        await self._note(
            "purge-result",
            id=purge.id,
            generation=purge.number,
            entries=result.entries,
            counted=result.counted,
            acknowledged=len(result.acknowledged),
            pending=result.pending,
        )
        return result

    async def _note(self, action: str, **fields: Any) -> None:
        await asyncio.to_thread(self._audit, action, fields)

    async def result(self, purge_id: str) -> PurgeResult | None:
        """How a purge stands now; None for one that is not remembered."""
        purge = self._purges.get(purge_id)
        if purge is None:
            return None
        acknowledged, pending = await self._standing(purge)
        notes = [f"{title} could not be looked through" for title in purge.job.failed]
        return PurgeResult(
            id=purge.id,
            generation=purge.number,
            entries=len(purge.hot | purge.job.matched),
            counted=self._all_counted(purge) and not purge.job.failed,
            acknowledged=tuple(acknowledged),
            pending=tuple(pending),
            widened=purge.widened,
            notes=tuple(notes),
        )

    def counted(self, worker: str, first: int, last: int, keys: Sequence[bytes]) -> None:
        """A worker has looked through its memory for what the rules of these generations concern."""
        self._reports.append((worker, first, last, keys))
        for purge in self._purges.values():
            self._count(purge, worker, first, last, keys)

    @staticmethod
    def _count(purge: _Purge, worker: str, first: int, last: int, keys: Sequence[bytes]) -> None:
        if worker in purge.counting and first <= purge.generation <= last:
            purge.counting.discard(worker)
            purge.hot.update(keys)

    async def _put_in_effect(self, rules: list[Rule]) -> _Purge:
        generations = [0] * len(rules)
        if self._fleet is not None:
            generations = await self._fleet.publish(rules)
        before = self._book.state
        first = before.number
        written = await self._book.add(list(zip(rules, generations, strict=True)))
        state = self._book.state
        own = PurgeState(Header(state.incarnation, number=first if written else 0), self._book.keying)
        number = 0
        for rule in rules:
            step = self._book.known.get(rule.uid)
            if step is not None:
                own.apply(step)
                # Not the newest of the log: other pods may have made rules meanwhile.
                number = max(number, step.number)
        number = number or state.number
        purge = _Purge(
            id=secrets.token_hex(8),
            generation=generation_of(state.incarnation, number),
            number=number,
            uids=frozenset(rule.uid for rule in rules),
            job=self._sweeper.begin(own),
            widened=not written,
            counting={member.name for member in self._members() if member.ready},
        )
        self._purges[purge.id] = purge
        for report in self._reports:
            self._count(purge, *report)
        while len(self._purges) > _REMEMBERED:
            self._purges.popitem(last=False)
        return purge

    async def _wait(self, purge: _Purge, patience: float, count_patience: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < patience:
            _, pending = await self._standing(purge)
            if not pending:
                break
            await asyncio.sleep(_POLL)
        while loop.time() < count_patience:
            if self._all_counted(purge, but_late=True):
                break
            await asyncio.sleep(_POLL)

    def _all_counted(self, purge: _Purge, *, but_late: bool = False) -> bool:
        """Whether all tiers have been looked through; `but_late`: save the memory of those that have not applied it."""
        waited_for = {
            member.name
            for member in self._members()
            if member.ready and not (but_late and not reached(member.applied, purge.generation))
        }
        return purge.job.done.is_set() and not purge.counting & waited_for

    async def _standing(self, purge: _Purge) -> tuple[list[str], list[str]]:
        acknowledged: list[str] = []
        pending: list[str] = []
        for member in self._members():
            if member.ready:
                behind = not reached(member.applied, purge.generation)
                (pending if behind else acknowledged).append(member.name)
        filters, late = self._filters(purge.generation)
        acknowledged += filters
        pending += late
        if self._fleet is not None:
            others, late = await self._fleet.standing(purge.uids)
            acknowledged += others
            pending += late
        return acknowledged, pending


def reached(applied: int, generation: int) -> bool:
    """Whether who has applied rules up to `applied` has applied those of `generation`."""
    # Another incarnation can only be a newer one: a worker never goes back to a log that was given up.
    return applied != 0 and (applied >> NUMBER_BITS != generation >> NUMBER_BITS or applied >= generation)


def _counts(rules: Iterable[Rule]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rule in rules:
        counts[rule.kind] = counts.get(rule.kind, 0) + 1
    return counts
