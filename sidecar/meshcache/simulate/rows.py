"""The figures of a result as rows of words, for the table on a terminal and for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshcache.simulate.units import shown_bytes, shown_count, shown_seconds, shown_share

if TYPE_CHECKING:
    from meshcache.simulate.result import Counts, PolicyResult, SimulationResult, TierMemory


class Row(NamedTuple):
    """One figure for each column."""

    title: str
    values: list[str]


def policy_rows(result: SimulationResult) -> list[Row]:
    """A column for each policy."""
    columns = [_of_policy(policy) for policy in result.policies]
    return [Row(title, [column[title] for column in columns]) for title in columns[0]] if columns else []


def arm_rows(policy: PolicyResult) -> tuple[list[str], list[Row]]:
    """Titles of columns, and a row for each arm or route; none where all requests are under one."""
    titles = ["requests", "hits", "to origin", "stale", "errors", "mean", "p99"]
    if sum(bool(arm.route) for arm in policy.arms) < 2:
        return titles, []
    return titles, [
        Row(
            _arm_name(arm.route, arm.experiment, arm.arm, arm.policy),
            [
                shown_count(arm.counts.requests),
                shown_share(arm.counts.hit_ratio),
                shown_count(arm.counts.origin_requests),
                shown_count(arm.counts.stale),
                shown_count(arm.counts.errors),
                shown_seconds(arm.counts.latency.mean),
                shown_seconds(arm.counts.latency.p99),
            ],
        )
        for arm in (*policy.arms, *policy.layers)
    ]


def _arm_name(route: str, experiment: str, arm: str, policy: str) -> str:
    if not route:
        return "(not cached)"
    name = f"{experiment}/{arm}" if experiment else route
    return f"{name} ({policy})" if policy else f"  {name}, all"


def _of_policy(policy: PolicyResult) -> dict[str, str]:
    total = policy.total
    return {
        "requests": shown_count(total.requests),
        "hits": shown_share(total.hit_ratio),
        **{f"  {tier}": shown_share(hits.ratio) for tier, hits in total.tiers.items()},
        "hits by bytes": shown_share(total.byte_hit_ratio),
        "collapsed": shown_count(policy.collapsed),
        "origin requests": shown_count(policy.origin_requests),
        "  in the background": shown_count(policy.refresh_requests),
        "origin bytes": shown_bytes(policy.origin_bytes),
        "stale answers": shown_count(total.stale),
        "  past freshness, mean": shown_seconds(total.staleness.mean),
        "  past freshness, p95": shown_seconds(total.staleness.p95),
        "outdated answers": shown_count(total.outdated),
        "errors": shown_count(total.errors),
        **_latency(total),
        "memory at most": _held(policy.memory["hot"]),
        "warm at most": _held(policy.memory["warm"]),
        "cold at most": _held(policy.memory["cold"]),
        "evicted from memory": shown_count(policy.memory["hot"].evicted.get("capacity", 0)),
    }


def _latency(total: Counts) -> dict[str, str]:
    spread = total.latency
    return {
        "latency, mean": shown_seconds(spread.mean),
        "  p50": shown_seconds(spread.p50),
        "  p95": shown_seconds(spread.p95),
        "  p99": shown_seconds(spread.p99),
    }


def _held(memory: TierMemory) -> str:
    entries = "" if memory.peak_entries is None else f", {shown_count(memory.peak_entries)} entries"
    return f"{shown_bytes(memory.peak_bytes)}{entries}"
