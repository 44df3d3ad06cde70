"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["fixtures_valkey"]

# On a machine that others use as well, how long one case takes, or to make one, says nothing of what is tested.
# In CI the cases are the same each time, so that a change is not refused for what was there before it; elsewhere, and
# for `make proofs`, they are new ones.
settings.register_profile(
    "default",
    settings.get_profile("default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("default")
# For `make unit`: a tenth of the cases by default, and the same ones each time.
settings.register_profile("quick", max_examples=10, derandomize=True, database=None)
# For `make proofs`: ten times as many.
settings.register_profile("proofs", max_examples=1000, derandomize=False, database=None)
