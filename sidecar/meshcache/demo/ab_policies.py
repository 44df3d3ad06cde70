"""The policy files of `meshcache demo ab`: caching until expiry against LRU with stale-while-revalidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENT: Final = "ttl-against-swr"
CONTROL: Final = "ttl-only"
CANDIDATE: Final = "lru-swr"
"""The arms, which are named like their policies."""
STALE_SECONDS: Final = 10

_HEAD: Final = "apiVersion: meshcache.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"

_CONFIG = """\
  trust:
    canaryHeader: {from: [{addresses: [127.0.0.0/8, "::1"]}]}
"""
_ROUTE = f"""\
  match: [{{path: {{prefix: /v1/images}}}}]
  policyRef: {{name: {CONTROL}}}
"""
_EXPERIMENT = """\
  routeRef: {{name: images}}
  unit: [{{header: x-user-id}}]
  arms:
    - {{name: {control}, policyRef: {{name: {control}}}, weight: 50}}
    - {{name: {candidate}, policyRef: {{name: {candidate}}}, weight: 50, force: [{{header: x-canary, exact: v2}}]}}
  compare: {{candidate: {candidate}, against: {control}}}
  primary: {{metric: hitRatio, direction: increase}}
  guardrails:
    - {{metric: errorRate, maxIncrease: {{absolute: 1%}}, for: 10s}}
  warmup: {warmup}s
"""
_PLAIN = """\
  eviction: ttl
  freshness: {maxTtl: 10m}
"""
_STALE = f"""\
  eviction: lru
  freshness: {{maxTtl: 10m, staleWhileRevalidate: {STALE_SECONDS}s}}
"""


def write_policies(folder: Path, warmup: int) -> None:
    """Write all files; `warmup` in seconds."""
    experiment = _EXPERIMENT.format(control=CONTROL, candidate=CANDIDATE, warmup=warmup)
    for kind, name, spec in (
        ("CacheConfig", "demo", _CONFIG),
        ("CacheRoute", "images", _ROUTE),
        ("CacheExperiment", EXPERIMENT, experiment),
        ("CachePolicy", CONTROL, _PLAIN),
        ("CachePolicy", CANDIDATE, _STALE),
    ):
        (folder / f"{name}.yaml").write_text(_HEAD.format(kind=kind, name=name) + spec, encoding="utf-8")


def swap_control(folder: Path) -> Path:
    """Have control's policy serve stale answers as well: one file, replaced as an editor does. Returns its path."""
    path = folder / f"{CONTROL}.yaml"
    fresh = path.with_suffix(".new")
    fresh.write_text(_HEAD.format(kind="CachePolicy", name=CONTROL) + _STALE, encoding="utf-8")
    return fresh.replace(path)
