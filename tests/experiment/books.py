"""Requests for books to count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from meshcache.experiment.exposure import Exposure
from meshcache.experiment.observation import Observation

if TYPE_CHECKING:
    from random import Random

ARMS = 3
NOW = 1_800_000_000.0

exposures = st.builds(
    Exposure, st.just("e"), st.integers(0, ARMS - 1), st.binary(min_size=16, max_size=16) | st.sampled_from([bytes(16)])
)
observations = st.builds(
    Observation,
    tier=st.integers(0, 3),
    stale=st.booleans(),
    origin_requests=st.integers(0, 2),
    origin_bytes=st.integers(0, 1 << 40),
    error=st.booleans(),
    latency=st.floats(0, 2000),
    age=st.floats(0, 1e6),
    cost_saved=st.floats(-1, 1),
)
requests = st.lists(st.tuples(exposures, observations, st.floats(NOW, NOW + 100)), max_size=40)


def unit(random: Random) -> bytes:
    return random.randbytes(16)
