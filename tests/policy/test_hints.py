"""Warnings about budgets that leave no room."""

from __future__ import annotations

import pytest

from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents, parse_documents
from meshcache.policy.hints import budget_warnings

CONFIG = """apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {{name: default}}
spec:
  budgets:
    {}
"""


def told(budget: str) -> list[str]:
    documents = Documents.of([("c.yaml", CONFIG.format(budget))])
    config = compile_documents(documents, generation=1, secret=b"").config
    return list(map(str, budget_warnings(parse_documents(documents)[0], config)))


@pytest.mark.parametrize("bytes_", ["32", "1Mi", "8Mi"])
def test_a_budget_that_the_tables_use_up(bytes_: str) -> None:
    assert told(f"filter: {bytes_}") == [
        "c.yaml:6:13: spec.budgets.filter: leaves no room for answers: the filter's own tables take 8Mi, so Envoy keeps"
        " none (give more, such as 32Mi, or 0 if it is to keep none)"
    ]


@pytest.mark.parametrize("budget", ["hot: 64Mi", "filter: 0", "filter: 9Mi"])
def test_budgets_that_are_meant(budget: str) -> None:
    assert told(budget) == []
