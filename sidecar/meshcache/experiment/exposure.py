"""That a request belongs to an experiment and counts in it, and where."""

from __future__ import annotations

from typing import NamedTuple


class Exposure(NamedTuple):
    """One experiment in which a request counts. A request whose arm was forced, or that carries no unit, has none."""

    experiment: str
    arm: int
    """Its place among the experiment's compiled arms."""
    unit: bytes
    """Keyed digest of the unit, 16 bytes: nobody can tell from it who that is."""


class CountedExperiment(NamedTuple):
    """An experiment whose requests are counted, as the policies in force have it."""

    experiment: str
    spec_hash: str
    epoch: int
    """Counts from different epochs are kept apart."""
    arms: tuple[str, ...]
    """The names of its compiled arms, in their order: `Exposure.arm` is the place among them."""
    uid: str = ""
    """Of the experiment (`Experiment.uid`): one that was deleted and made again is another one."""
