"""Experiments as `meshcache experiment` prints them: lines and tables for people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from meshcache.experiment.metric import SECONDS, SHARES, Metric
from meshcache.experiment.overlay import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshcache.experiment.state import Decision, Evidence
    from meshcache.extproc.experiment_views import ArmView, EstimateView, ExperimentList, ExperimentView

NONE = "-"
SHOWN_DECISIONS = 10


def told_list(found: ExperimentList) -> str:
    """All experiments, one line each."""
    if not found.experiments:
        return "no experiment is in force"
    rows = [("name", "phase", "stage", "shares", "route", "newest decision")]
    for each in found.experiments:
        shares = ", ".join(f"{arm} {share:.4g}%" for arm, share in ((a, s * 100) for a, s in each.shares.items()))
        last = f"{_time(each.since)}  {each.decided} ({each.reason})" if each.decided else NONE
        phase = f"{each.phase} {each.winner}".strip()
        rows.append((each.name, phase, f"{each.stage} of {each.stages}", shares, each.route, last))
    lines = table(rows)
    if not found.connected:
        lines.append(_away(found.store))
    return "\n".join(lines)


def told_line(found: ExperimentView) -> str:
    """One experiment, after an order."""
    shares = ", ".join(f"{arm.name} {arm.share * 100:.4g}%" for arm in found.arms)
    return f"{found.name}  {found.phase}  {shares}"


def told(found: ExperimentView) -> str:
    """One experiment, whole."""
    lines = [_head(found)]
    if not found.connected:
        lines.append(_away(found.store))
    lines += ["", *table([_ARM_HEAD, *(_arm(arm) for arm in found.arms)])]
    if found.estimates:
        head = ("metric", "", "candidate", "against", "change", "certain to be within", "allowed", "state")
        lines += ["", *table([head, *(_estimate(one) for one in found.estimates)])]
    if found.p_value is not None and any(arm.units for arm in found.arms):
        split = "is not the planned one" if found.mismatch else "is as planned"
        lines += ["", f"split      {split} (p = {found.p_value:.3g})"]
    lines += [f"waits for  {sentence}" for sentence in found.missing]
    if found.decisions:
        lines += ["", *_decisions(found.decisions[-SHOWN_DECISIONS:])]
        if len(found.decisions) > SHOWN_DECISIONS:
            lines.append(f"and {len(found.decisions) - SHOWN_DECISIONS} earlier ones, in --json")
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their columns one below the other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _away(store: str) -> str:
    return f"note  {store} does not answer: this is what was in force last, and nothing is decided now"


def _head(found: ExperimentView) -> str:
    parts = [found.name, f"{found.phase} {found.winner}".strip(), f"stage {found.stage} of {found.stages}"]
    # Where the stages are at an end, it is the end that one wants to know of.
    going = found.phase in (Phase.WARMING, Phase.RUNNING) or not found.decisions
    since = found.stage_since if going else found.decisions[-1].at
    if since:
        parts.append(f"since {_time(since)}")
    parts += [f"route {found.route}", "counting" if found.counting else "not counting"]
    parts.append("this pod decides" if found.leads else "another pod decides")
    return "  ".join(parts)


_ARM_HEAD = ("arm", "policy", "share", "units", "requests", "hit ratio", "mean", "p99", "errors", "origin", "saved")


def _arm(arm: ArmView) -> tuple[str, ...]:
    return (
        arm.name,
        arm.policy,
        f"{arm.share * 100:.4g}%",
        str(arm.units),
        str(arm.requests),
        _value(Metric.HIT_RATIO, arm.hit_ratio),
        _value(Metric.LATENCY_MEAN, arm.latency_mean),
        _value(Metric.LATENCY_P99, arm.latency_p99),
        str(arm.errors),
        str(arm.origin_requests),
        f"{arm.cost_saved:.4g}",
    )


def _estimate(one: EstimateView) -> tuple[str, ...]:
    metric = Metric(one.metric)
    bounds = [_change(metric, end, relative=one.relative) for end in (one.low, one.high)]
    within = NONE if one.low is None and one.high is None else " to ".join(bounds)
    state = f"{one.state} ({one.lack})" if one.lack else one.state
    if one.breached_for:
        state += f", for {one.breached_for:.0f} of {one.hold:.0f} s"
    allowed = f"{one.wanted} wanted" if one.wanted else _change(metric, one.allowed, relative=one.relative)
    return (
        one.metric,
        one.role,
        _value(metric, one.candidate),
        _value(metric, one.against),
        _change(metric, one.change, relative=one.relative),
        within,
        allowed,
        state,
    )


def _value(metric: Metric, value: float | None) -> str:
    if value is None:
        return NONE
    if metric in SHARES:
        return f"{value * 100:.2f}%"
    if metric in SECONDS:
        return _seconds(value)
    return f"{value:.4g}"


def _change(metric: Metric, value: float | None, *, relative: bool) -> str:
    """A difference, with its sign; shares in percentage points, relative changes in percent."""
    if value is None:
        return NONE
    if relative:
        return f"{value * 100:+.2f}%"
    if metric in SHARES:
        return f"{value * 100:+.2f}pp"
    if metric in SECONDS:
        return f"{'-' if value < 0 else '+'}{_seconds(abs(value))}"
    return f"{value:+.4g}"


def _seconds(value: float) -> str:
    return f"{value * 1000:.4g}ms" if value < 1 else f"{value:.4g}s"


def _decisions(decisions: Sequence[Decision]) -> list[str]:
    lines = []
    for decision in decisions:
        by = decision.who or decision.by
        text = f"  {decision.text!r}" if decision.text else ""
        what = f"{decision.what} {decision.winner}".rstrip()
        lines.append(f"{_time(decision.at)}  {what:<10}  {decision.reason}  by {by}{text}")
        lines += [f"                       {_evidence(one)}" for one in decision.evidence]
    return lines


def _evidence(one: Evidence) -> str:
    units = " and ".join(map(str, one.units))
    if not one.metric:
        p_value = NONE if one.p_value is None else f"{one.p_value:.3g}"
        return f"split of units p = {p_value}  units {units}"
    metric = Metric(one.metric)
    low, high = (_change(metric, end, relative=one.relative) for end in (one.low, one.high))
    parts = [
        f"{one.metric} {_value(metric, one.candidate)} against {_value(metric, one.against)}",
        f"change {_change(metric, one.change, relative=one.relative)} ({low} to {high})",
    ]
    if one.allowed is not None:
        parts.append(f"allowed {_change(metric, one.allowed, relative=one.relative).lstrip('+')}")
    if one.seconds:
        parts.append(f"for {one.seconds:.0f} s")
    return "  ".join([*parts, f"units {units}"])


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
