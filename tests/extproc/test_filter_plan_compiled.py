"""The plan by what the CacheConfig says of memory."""

from __future__ import annotations

import pytest

from meshcache.extproc.filter_plan import MOST_BYTES, compiled_plan
from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from meshcache.wasm.plan import SECRET_BYTES

CONFIG = """apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {{name: default}}
spec: {{budgets: {{filter: {}}}}}
"""


def plan(budget: str) -> bytes:
    snapshot = compile_documents(Documents.of([("c.yaml", CONFIG.format(budget))]), generation=1, secret=b"")
    return compiled_plan(snapshot, bytes(SECRET_BYTES), 10.0)[1]


@pytest.mark.parametrize("budget", ["5Gi", "255Ti", "256Ti", "999999Ti"])
def test_a_budget_beyond_all_memory_is_as_much_as_there_can_be(budget: str) -> None:
    assert plan(budget) == plan(str(MOST_BYTES))
