"""How long, how often and how hard is measured: what the environment says."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from bench.processes import MeasurementError


@dataclass(frozen=True, slots=True)
class Settings:
    """How long, how often, how hard."""

    seconds: int
    rounds: int
    connections: int
    as_json: bool

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises `MeasurementError` for what is not a positive whole number."""
        return cls(
            seconds=positive("SECONDS_PER_PATH", 3),
            rounds=positive("ROUNDS", 5),
            connections=positive("CONNECTIONS", 32),
            as_json=os.environ.get("JSON", "") not in ("", "0"),
        )


def positive(name: str, default: int) -> int:
    """The whole number that an environment variable has; raises `MeasurementError` when it is none, or not above 0."""
    text = os.environ.get(name) or str(default)
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise MeasurementError(f"{name} is {text!r}; it has to be a whole number from 1 on")
    return int(text)


def positive_number(name: str, default: float) -> float:
    """The number that an environment variable has; raises `MeasurementError` when it is none, or not above 0."""
    text = os.environ.get(name) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise MeasurementError(f"{name} is {text!r}; it has to be a number above 0")
    return number
