"""That a request belongs to an experiment and counts in it."""

from __future__ import annotations

from typing import NamedTuple


class Exposure(NamedTuple):
    """One experiment in which a request counts. A request whose arm was forced, or that carries no unit, has none."""

    experiment: str
    arm: int
    """Its place among the experiment's compiled arms."""
    unit: bytes
    """Keyed digest of the unit, 16 bytes: nobody can tell from it who that is."""
