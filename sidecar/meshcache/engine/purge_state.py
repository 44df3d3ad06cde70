"""All purge rules that a process has put in effect, and what they say of entries of this pod and of others.

Each pod has a log of its own, whose steps are numbered: every rule in it, wherever it was made, kills what this pod's
workers asked for before they had applied it. Where pods share a store they also share a log beside it, with generations
of its own, by which they judge each other's entries: a number of one pod's log means nothing to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from meshcache.engine.purges import ALIVE, DEAD, Keying, Labels, PurgeKind, Rule, RuleTable, Verdict, labels_of

if TYPE_CHECKING:
    from meshcache.engine.records import Record

Born = tuple[int, int]
"""When an entry was born: the generation of the pod that asked for it, and that of the fleet's log."""

UNBORN: Final[Born] = (0, 0)
"""Of what was stored where no log is kept."""

NUMBER_BITS: Final = 24
"""A pod's generation is the incarnation of its log (40 random bits, so that no two pods have the same) and a number."""
MOST_NUMBERS: Final = (1 << NUMBER_BITS) - 1
INCARNATION_BITS: Final = 40


class Header(msgspec.Struct, frozen=True, array_like=True):
    """What a log begins with."""

    incarnation: int
    """Drawn at random when the log was made."""
    number: int = 0
    """Of the newest step that is not in the log any more, or is covered by what follows."""
    floor: int = 0
    """Entries of this pod born under a smaller number are dead: rules of then have been forgotten."""
    fleet: int = 0
    """The newest generation of the fleet's log that this pod has read."""
    shared_floor: int = 0
    """Entries of other pods born under a smaller generation of the fleet's log are dead."""
    mark: int = 0
    """Random, of this file alone."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One numbered line of a pod's log."""

    number: int
    rule: Rule | None
    at: float
    """Unix seconds by this pod's clock."""
    fleet: int = 0
    """Generation of the rule in the fleet's log; 0 for a rule that is not there, or not yet."""
    uid: str = ""
    """Without a rule: of one logged before, which has the generation `fleet` now."""
    read: int = 0
    """How far the fleet's log has been read. A rule of this pod's own may be there before those that came ahead of it
    are known here."""


def generation(incarnation: int, number: int) -> int:
    """The generation of a step."""
    return (incarnation << NUMBER_BITS) | number


class PurgeState:
    """The rules in effect. `apply` puts the next step of the log in effect; plain memory, no I/O."""

    def __init__(self, header: Header, keying: Keying) -> None:
        self.incarnation = header.incarnation
        self.number = header.number
        """Of the newest step applied."""
        self.floor = header.floor
        self.fleet = header.fleet
        self.shared_floor = header.shared_floor
        self.owed: dict[str, Rule] = {}
        """Rules that the fleet's log has not got, by `uid`."""
        self.uids: set[str] = set()
        """Of all rules known."""
        self._keying = keying
        self._newest_rule = 0
        self._lost = 0
        """Number of the newest step by which the shared store lost its log."""
        self._pod = RuleTable(keying)
        self._fleet = RuleTable(keying)
        self._owed = RuleTable(keying)

    def __len__(self) -> int:
        return len(self._pod)

    @property
    def generation(self) -> int:
        """Of the newest step applied."""
        return generation(self.incarnation, self.number)

    @property
    def born(self) -> Born:
        """When something that is asked for now is born."""
        return self.generation, self.fleet

    def apply(self, step: Step) -> None:
        """Put a step in effect. The numbers of steps grow; one that is not newer than the last changes nothing."""
        if step.number <= self.number:
            return
        self.number = step.number
        self.fleet = max(self.fleet, step.read)
        rule = step.rule
        if rule is None:
            owed = self.owed.pop(step.uid, None)
            if owed is not None:
                self._fleet.add(owed, step.fleet)
                self._index_owed()
            return
        self._newest_rule = step.number
        self.uids.add(rule.uid)
        if rule.kind is PurgeKind.LOST:
            self.shared_floor = step.fleet
            self._lost = step.number
            return
        if rule.at > step.at:
            # Made by another pod, whose clock is ahead: what is stale is so from now on, and not from a time to come.
            rule = msgspec.structs.replace(rule, at=step.at)
        self._pod.add(rule, step.number)
        if step.fleet:
            self._fleet.add(rule, step.fleet)
        else:
            self.owed[rule.uid] = rule
            self._owed.add(rule, 1)

    def verdict(self, born: Born, entry: Record | Labels, *, shared: bool) -> Verdict:
        """What the rules say of an entry; `shared`: it was read from a store into which other pods write, too.

        What this pod keeps for itself is of its own making, even if a copy: it was judged when it was copied.
        """
        incarnation, number = born[0] >> NUMBER_BITS, born[0] & MOST_NUMBERS
        if incarnation == self.incarnation:
            if number < self.floor or (shared and number < self._lost):
                return DEAD
            if number >= self._newest_rule:
                return ALIVE
            return self._pod.newest(_labels(entry)).verdict(number)
        if not shared or born[1] < self.shared_floor:
            # Of a log that is lost: nobody knows which rules there were.
            return DEAD
        labels = _labels(entry)
        verdict = self._fleet.newest(labels).verdict(born[1])
        if self.owed and not verdict.dead:
            # Nobody else has heard of these; whether it was born before or after them, nobody can tell.
            owed = self._owed.newest(labels).verdict(0)
            if owed.dead or verdict.stale_since is None:
                return owed
        return verdict

    def _index_owed(self) -> None:
        self._owed = RuleTable(self._keying)
        for rule in self.owed.values():
            self._owed.add(rule, 1)


def _labels(entry: Record | Labels) -> Labels:
    return entry if isinstance(entry, Labels) else labels_of(entry)
