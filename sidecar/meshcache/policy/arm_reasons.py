"""Why a request has its arm, in each experiment of its route: for `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from meshcache.experiment.assignment import AssignedBy
from meshcache.experiment.overlay import Phase
from meshcache.policy.reasons import one_of

if TYPE_CHECKING:
    from meshcache.message import Peer, Request
    from meshcache.policy.compiled import Experiment, UnitSource
    from meshcache.policy.layers import Account
    from meshcache.policy.snapshot import Selection, Snapshot
    from meshcache.policy.trust import TrustRule

_DECIDED: Final = {
    Phase.STOPPED: "the experiment was stopped, so that everybody gets the first arm",
    Phase.ROLLED_BACK: "the experiment was rolled back, so that everybody gets the first arm",
    Phase.PROMOTED: "the arm was promoted, so that everybody gets it",
}


@dataclass(frozen=True)
class ArmReason:
    """The arm of a request in one experiment."""

    experiment: str
    arm: str
    how: AssignedBy
    unit: str
    """The kind and name of what its unit was taken from; empty when it was not hashed, or known from before only."""
    linked: bool
    """Whether an earlier request of the same caller has decided which unit counts."""
    phase: str
    """Empty when nothing has been decided about the experiment, and the file alone holds."""
    weights: dict[str, int]
    """The arms' shares in force."""
    why: str


def arm_reasons(snapshot: Snapshot, request: Request, selection: Selection) -> tuple[ArmReason, ...]:
    """One for each experiment on the route of `selection`, whose arm is chosen."""
    # Where the key chooses there is but one experiment, and its arm is the selection's.
    return tuple(
        _reason(snapshot, request, account, account.arm or selection.arm)
        for account in snapshot.account(request, selection.route)
    )


def peer_of(peer: Peer) -> str:
    """The peer, for people."""
    return f"{peer.address or 'an unknown address'}{' by mTLS' if peer.mtls else ''}"


def untrusted(rule: TrustRule, field: str, peer: Peer) -> str:
    """Why what `peer` says does not count."""
    return f"not trusted from {peer_of(peer)}: trust.{field} names {rule}"


def _reason(snapshot: Snapshot, request: Request, account: Account, arm: str) -> ArmReason:
    experiment, overlay = account.experiment, account.overlay
    notes = [_why(account, arm, request)]
    if account.how is not AssignedBy.FORCED:
        notes += _ignored_forces(snapshot, experiment, request, overlay is not None and overlay.phase)
    return ArmReason(
        experiment=experiment.name,
        arm=arm,
        how=account.how,
        unit="" if account.source is None else _named(account.source),
        linked=account.linked,
        phase="" if overlay is None else str(overlay.phase),
        weights={one.name: weight for one, weight in zip(experiment.arms, account.weights, strict=True)},
        why="; ".join(notes),
    )


def _why(account: Account, arm: str, request: Request) -> str:
    experiment, overlay = account.experiment, account.overlay
    if account.how is AssignedBy.FORCED:
        return f"forced by {_forcing(experiment, arm, request)}, trusted from {peer_of(request.peer)}"
    if account.how is AssignedBy.DECIDED and overlay is not None:
        return _DECIDED[overlay.phase]
    if account.how is AssignedBy.NO_UNIT:
        wanted = one_of([_named(unit) for unit in experiment.units])
        return f"the request carries no unit ({wanted}), so it gets the first arm"
    shares = ", ".join(f"{one.name} {weight}" for one, weight in zip(experiment.arms, account.weights, strict=True))
    given = f"weights: {shares}" if overlay is None else f"weights of the phase {overlay.phase}: {shares}"
    if experiment.by_key:
        return f"chosen by the hash of the cache key ({given})"
    if account.source is None:
        return f"chosen by the hash of another unit, with which the caller was seen before ({given})"
    before = ", with which the caller was seen before" if account.linked else ""
    return f"chosen by the hash of the {_named(account.source)}{before} ({given})"


def _named(unit: UnitSource) -> str:
    return f"{unit.kind} {unit.name}".rstrip()


def _forcing(experiment: Experiment, arm: str, request: Request) -> str:
    force = next(one.force for one in experiment.arms if one.name == arm)
    return next(f"{name}: {value}" for name, value in force if request.headers.get(name) == value)


def _ignored_forces(snapshot: Snapshot, experiment: Experiment, request: Request, phase: Phase | bool) -> list[str]:
    """Why the forcing headers that the request carries did not count."""
    forced: dict[str, list[str]] = {}
    for arm in experiment.arms:
        for name, value in arm.force:
            forced.setdefault(name, []).append(value)
    notes = []
    for name, values in forced.items():
        got = request.headers.get_all(name)
        if not got:
            continue
        if len(got) > 1:
            notes.append(f"{name} is ignored: it is given {len(got)} times")
        elif got[0] not in values:
            notes.append(f"{name} is ignored: {got[0]!r} names no arm, {one_of(values)} would")
        elif phase is Phase.ROLLED_BACK:
            notes.append(f"{name} is ignored: it would force an arm of what was rolled back")
        else:
            rule = snapshot.config.trust.canary
            notes.append(f"{name} is {untrusted(rule, 'canaryHeader', request.peer)}")
    return notes
