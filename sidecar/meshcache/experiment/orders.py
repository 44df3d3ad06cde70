"""What a person may decide about an experiment, at any time."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from meshcache.experiment.overlay import Phase
from meshcache.experiment.plan import Step, conclude, enter_stage
from meshcache.experiment.state import Decided, Reason

if TYPE_CHECKING:
    from meshcache.experiment.state import Evidence, Record
    from meshcache.policy.compiled import Experiment


class Order(StrEnum):
    """What is asked for."""

    STOP = "stop"
    """Everybody on control; forced requests still get their arm."""
    RESUME = "resume"
    """Go on: where it was paused, in that stage; else from the first."""
    PROMOTE = "promote"
    """Everybody on the candidate."""
    ROLLBACK = "rollback"
    """Everybody on control, forced requests too."""


_DONE = {Order.STOP: Phase.STOPPED, Order.PROMOTE: Phase.PROMOTED, Order.ROLLBACK: Phase.ROLLED_BACK}
_WHAT = {Phase.STOPPED: Decided.STOPPED, Phase.PROMOTED: Decided.PROMOTED, Phase.ROLLED_BACK: Decided.ROLLED_BACK}


def carry_out(
    experiment: Experiment,
    record: Record,
    order: Order,
    now: float,
    *,
    who: str,
    text: str = "",
    arm: str = "",
    evidence: tuple[Evidence, ...] = (),
) -> Step:
    """What follows from a person's `order`. `record` is about this text (`plan.begin`).

    `arm` is whom to promote in place of the candidate; `evidence` how things stand. Raises `ValueError` with a
    sentence for what makes no sense.
    """
    if order is Order.RESUME:
        if record.phase in (Phase.WARMING, Phase.RUNNING):
            raise ValueError(f"{record.name} is {record.phase} already")
        stage = record.stage if record.phase is Phase.PAUSED else 0
        return enter_stage(experiment, record, stage, now, Decided.RESUMED, Reason.PERSON, who=who, text=text)
    phase = _DONE[order]
    winner = _winner(experiment, arm) if phase is Phase.PROMOTED else ""
    if record.phase is phase and record.winner == winner:
        raise ValueError(f"{record.name} is {phase} already")
    return conclude(experiment, record, phase, winner, now, _WHAT[phase], Reason.PERSON, evidence, who=who, text=text)


def _winner(experiment: Experiment, arm: str) -> str:
    names = [one.name for one in experiment.arms]
    if arm:
        if arm not in names:
            raise ValueError(f"{experiment.name} has no arm {arm}: it has {', '.join(names)}")
        return arm
    if experiment.compare is not None:
        return names[experiment.compare.candidate]
    if len(names) == 2:
        return names[1]
    raise ValueError(f"{experiment.name} compares nothing: name the arm to promote, one of {', '.join(names)}")
