"""The policies under which the tests run: for each a route that is named like it and like its path prefix."""

from __future__ import annotations

HEAD = """\
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec:
  trust:
    # One address, so that a client of this machine that connects from another one is a stranger.
    canaryHeader: {from: [{addresses: [127.0.0.1]}]}
    scoreHeader: {from: [{addresses: [127.0.0.1]}]}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: comparison}
spec:
  routeRef: {name: tested}
  unit: [{header: x-user-id}]
  arms:
    - {name: control, policyRef: {name: plain}, weight: 50}
    - {name: candidate, policyRef: {name: stale}, weight: 50, force: [{header: x-canary, exact: v2}]}
"""

# The deadlines are long, so that a slow machine changes no decision; together just below the time that Envoy waits for
# the sidecar anyway, where requests may wait for each other.
POLICY = """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {{name: {name}}}
spec:
  tiers: {{warm: {{deadline: 900ms}}, cold: {{deadline: 900ms}}}}
  {rules}
"""

ROUTE = """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {{name: {name}}}
spec:
  match: [{{path: {{prefix: /{name}}}}}]
  policyRef: {{name: {policy}}}
"""

STALE = "freshness: {staleWhileRevalidate: 1h}"
SAFETY = "freshness: {staleIfError: 1h}"
GREEDY = """freshness:
    defaultTtl: 60s
    negative: [{status: 403, ttl: 60s}, {status: 404, ttl: 60s}, {status: 502, ttl: 60s}, {status: 503, ttl: 60s}]"""
PLACED = "placement: {hotAt: 70, warmAt: 30}"


def policies(plain: str = "freshness: {}") -> str:
    """The whole set, with these rules for the policy `plain`."""
    rules = {"plain": plain, "stale": STALE, "safety": SAFETY, "greedy": GREEDY, "placed": PLACED}
    routes = {name: name for name in rules} | {"tested": "plain"}
    return "".join(
        [
            HEAD,
            *(POLICY.format(name=name, rules=text) for name, text in rules.items()),
            *(ROUTE.format(name=name, policy=policy) for name, policy in routes.items()),
        ]
    )


POLICIES = policies()
