"""The policies under which the tests run: one route for each, named like its path prefix."""

from __future__ import annotations

POLICIES = """\
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
kind: CachePolicy
metadata: {name: plain}
spec: {}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: stale}
spec:
  freshness: {staleWhileRevalidate: 1h}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: safety}
spec:
  freshness: {staleIfError: 1h}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: greedy}
spec:
  freshness:
    defaultTtl: 60s
    negative: [{status: 403, ttl: 60s}, {status: 404, ttl: 60s}, {status: 502, ttl: 60s}, {status: 503, ttl: 60s}]
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: placed}
spec:
  placement: {hotAt: 70, warmAt: 30}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: plain}
spec:
  match: [{path: {prefix: /plain}}]
  policyRef: {name: plain}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: stale}
spec:
  match: [{path: {prefix: /stale}}]
  policyRef: {name: stale}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: safety}
spec:
  match: [{path: {prefix: /safety}}]
  policyRef: {name: safety}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: greedy}
spec:
  match: [{path: {prefix: /greedy}}]
  policyRef: {name: greedy}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: placed}
spec:
  match: [{path: {prefix: /placed}}]
  policyRef: {name: placed}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: tested}
spec:
  match: [{path: {prefix: /tested}}]
  policyRef: {name: plain}
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
