"""What the environment says of a soak."""

from __future__ import annotations

import math
import os

from bench.processes import MeasurementError


def positive(name: str, default: float) -> float:
    """The number that an environment variable has; raises `MeasurementError` when it is none, or not above 0."""
    text = os.environ.get(name) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise MeasurementError(f"{name} is {text!r}; it has to be a number above 0")
    return number
