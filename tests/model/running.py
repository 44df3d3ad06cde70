"""How histories are run."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from model.machine import Histories

STEPS = 40
"""Things that happen in one history, at most."""


def run(examples: int, *phases: Phase, random: bool = True) -> None:
    """Run some histories, without `random` always the same; raises what the first that shows a difference raises."""
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            derandomize=not random,
            # What a spoilt engine fails in is nothing to begin with next time.
            database=settings().database if random else None,
            deadline=None,
            # Never with the phase that explains: it traces every line of the engine, and takes minutes.
            phases=phases,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
