"""Policy documents for tests, and the snapshots that they make."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

from meshcache.policy.compile import Surroundings, compile_documents
from meshcache.policy.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshcache.policy.snapshot import Snapshot

SECRET = b"secret of the assignment in tests"

# Long deadlines: the tests judge decisions, and a slow machine must not change them.
TIERS = """
hot: {ttl: 10m, maxObjectBytes: 1Mi, deadline: 5s}
warm: {ttl: 1h, maxObjectBytes: 2Mi, deadline: 5s}
cold: {ttl: 24h, maxObjectBytes: 4Mi, deadline: 5s}
"""


def policies(*, config: str = "", more: str = "", name: str = "p", **spec: str) -> str:
    """Policy documents: one policy with the given parts of its `spec` (YAML), for every path, and `more` documents."""
    # Tests of other things have several requests for one key under way without one waiting for the other.
    spec = {"tiers": TIERS, "collapse": "{enabled: false}"} | spec
    ref = f"{{name: {name}}}"
    parts = "\n".join(f"{part}:\n{indent(text.strip(), '  ')}" for part, text in spec.items())
    documents = [
        f"kind: CachePolicy\nmetadata: {{name: {name}}}\nspec:\n{indent(parts, '  ')}",
        f"kind: CacheRoute\nmetadata: {{name: all}}\nspec: {{match: [{{path: {{prefix: /}}}}], policyRef: {ref}}}",
    ]
    if "trust:" not in config:
        # Tests look behind what strangers are told.
        config += "\ntrust: {cacheStatus: {from: [any]}}"
    if config:
        documents.append(f"kind: CacheConfig\nmetadata: {{name: default}}\nspec:\n{indent(config.strip(), '  ')}")
    if more:
        documents.extend(more.strip().split("\n---\n"))
    return "\n---\n".join(f"apiVersion: meshcache.dev/v1alpha1\n{document}" for document in documents)


def compiled(text: str, generation: int = 1, refresh_clusters: Iterable[str] | None = None) -> Snapshot:
    """The snapshot of policy documents given as one text."""
    around = None if refresh_clusters is None else Surroundings(refresh_clusters=frozenset(refresh_clusters))
    documents = Documents.of([("test.yaml", text)])
    return compile_documents(documents, generation=generation, secret=SECRET, surroundings=around)


def experiment(*, second: str = "p") -> str:
    """An experiment on the route of `policies`: the arm `two`, under the policy `second`, is for `x-canary: v2`."""
    return f"""
kind: CacheExperiment
metadata: {{name: e}}
spec:
  routeRef: {{name: all}}
  unit: [{{header: x-user-id}}]
  arms:
    - {{name: one, policyRef: {{name: p}}, weight: 1}}
    - {{name: two, policyRef: {{name: {second}}}, weight: 0, force: [{{header: x-canary, exact: v2}}]}}
"""


def experiment_and_off(candidate: str = "p") -> str:
    """Beside `policies`: a route with an experiment whose arm two is under `candidate`, and one that is not cached."""
    return f"""
kind: CacheExperiment
metadata: {{name: e}}
spec:
  routeRef: {{name: tested}}
  unit: [{{header: x-user-id}}]
  arms:
    - {{name: one, policyRef: {{name: p}}, weight: 1}}
    - {{name: two, policyRef: {{name: {candidate}}}, weight: 1, force: [{{header: x-canary, exact: v2}}]}}
---
kind: CacheRoute
metadata: {{name: tested}}
spec: {{match: [{{path: {{prefix: /tested}}}}], policyRef: {{name: p}}}}
---
kind: CacheRoute
metadata: {{name: off}}
spec: {{match: [{{path: {{prefix: /off}}}}]}}
"""
