"""The report: one file with everything in it, whole HTML, and charts that say in words what they show."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from worlds import asked

from meshcache.extproc import wire
from meshcache.simulate.html import report
from meshcache.simulate.latency import LatencyModel
from meshcache.simulate.quantiles import Quantiles
from meshcache.simulate.run import Contender, OriginModel, Simulation
from meshcache.simulate.svg import Axis, Series, line_chart
from meshcache.simulate.tally import Timeline
from meshcache.simulate.units import shown_bytes, shown_seconds
from policy_texts import compiled, experiment, policies

if TYPE_CHECKING:
    from pathlib import Path

    from meshcache.simulate.result import SimulationResult


@pytest.fixture
def result(tmp_path: Path) -> SimulationResult:
    sets = {"one <b>": policies(freshness="{}"), "two": policies(freshness="{}", more=experiment())}
    simulation = Simulation(
        tmp_path,
        [Contender(name, compiled(text)) for name, text in sets.items()],
        origin=OriginModel(cache_control="max-age=60"),
        latency=LatencyModel(),
        render=wire.render,
    )
    for place in range(300):
        simulation.feed(asked(place * 2.0, f"/{place % 7}", 100 * (1 + place % 7), user=f"u{place % 10}"))
    return simulation.result("t.log", "common", 2, [(3, "is broken")])


class Whole(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_whole_and_needs_nothing_else(result: SimulationResult) -> None:
    page = report(result, [("trace", "t.log")])
    parser = Whole()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert "prefers-color-scheme: dark" in page
    assert "one &lt;b&gt;" in page
    assert "<b>" not in page
    charts = re.findall(r"<svg [^>]*role=.*?</svg>", page, re.DOTALL)
    assert len(charts) == 2
    for chart in charts:
        tree = ElementTree.fromstring(chart)
        named = {each.get("id"): each.text for each in tree.iter() if each.get("id")}
        assert all(named[name] for name in tree.get("aria-labelledby", "").split())


def test_the_figures_agree_with_each_other(result: SimulationResult) -> None:
    for policy in result.policies:
        total = policy.total
        assert total.requests == 300 == sum(arm.counts.requests for arm in policy.arms)
        assert total.requests == sum(total.decisions.values()) == sum(policy.over_time.requests)
        hits = sum(tier.requests for tier in total.tiers.values())
        assert total.hit_ratio == pytest.approx(hits / 300)
        assert hits + policy.collapsed + total.origin_requests == 300
        assert sum(policy.over_time.hits) == hits
    assert result.trace.objects == 7
    assert result.curve.miss_ratio[-1] == pytest.approx(7 / 300)


def test_of_several_experiments_on_a_route_each_has_its_figures(tmp_path: Path) -> None:
    def on(name: str, policy: str) -> str:
        return (
            f"kind: CacheExperiment\nmetadata: {{name: {name}}}\nspec:\n  routeRef: {{name: all}}\n"
            f"  unit: [{{header: x-user-id}}]\n  arms:\n"
            f"    - {{name: one, policyRef: {{name: p}}, weight: 50}}\n"
            f"    - {{name: two, policyRef: {{name: {policy}}}, weight: 50}}"
        )

    def policy(name: str, spec: str) -> str:
        return f"kind: CachePolicy\nmetadata: {{name: {name}}}\nspec: {{extends: {{name: p}}, {spec}}}"

    others = (policy("q", "eviction: ttl"), policy("r", "freshness: {staleWhileRevalidate: 5s}"))
    text = policies(freshness="{}", eviction="lru", more="\n---\n".join((*others, on("e", "q"), on("f", "r"))))
    simulation = Simulation(
        tmp_path,
        [Contender("set", compiled(text))],
        origin=OriginModel(cache_control="max-age=60"),
        latency=LatencyModel(),
        render=wire.render,
    )
    for place in range(200):
        simulation.feed(asked(place * 1.0, user=f"u{place % 40}"))
    (found,) = simulation.result("t", "csv", 0, []).policies
    assert {arm.arm for arm in found.arms} == {"one+one", "one+two", "two+one", "two+two"}
    by_layer = {(arm.experiment, arm.arm): arm.counts.requests for arm in found.layers}
    assert by_layer.keys() == {("e", "one"), ("e", "two"), ("f", "one"), ("f", "two")}
    assert by_layer["e", "one"] + by_layer["e", "two"] == by_layer["f", "one"] + by_layer["f", "two"] == 200


@settings(deadline=None)  # a busy machine may take long for one
@given(st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=300))
def test_quantiles(values: list[float]) -> None:
    found, half = Quantiles(), Quantiles()
    for place, value in enumerate(values):
        (found if place % 2 else half).add(value)
    found.merge(half)
    assert found.mean() == pytest.approx(sum(values) / len(values), abs=1e-9)
    for share in (0.5, 0.95, 1.0):
        (shown,) = found.at(share)
        assert shown == pytest.approx(
            sorted(values)[max(1, -(-int(share * 100) * len(values) // 100)) - 1], rel=0.006, abs=1e-9
        )


def test_no_values_have_no_quantiles() -> None:
    assert (Quantiles().mean(), Quantiles().at(0.5)) == (None, [None])


@given(st.lists(st.floats(0, 1e7), max_size=200))
def test_a_timeline_forgets_no_request(times: list[float]) -> None:
    line = Timeline(0.0)
    for number, when in enumerate(times):
        line.add(when, number % 3 == 0)
    assert (sum(line.requests), sum(line.hits)) == (len(times), -(-len(times) // 3))
    assert len(line.requests) <= 128


@given(
    st.lists(st.tuples(st.floats(1, 1e12), st.floats(0, 1)), max_size=20),
    st.booleans(),
)
@example([(1.0, 5e-324)], False)
def test_every_chart_is_well_formed_and_within_its_frame(points: list[tuple[float, float]], logarithmic: bool) -> None:
    chart = line_chart(
        "c", "a < b", "says & what", Axis("x", shown_bytes, logarithmic), Axis("y", str), [Series("s", points, 0)]
    )
    if not points:
        assert chart == ""
        return
    tree = ElementTree.fromstring(chart)
    for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", " ".join(each.get("d", "") for each in tree.iter())):
        assert -1 <= float(x) <= 721
        assert -1 <= float(y) <= 361


def test_units() -> None:
    assert [shown_bytes(value) for value in (0, 1023, 1024, 64 << 20)] == ["0 B", "1023 B", "1 KiB", "64 MiB"]
    assert [shown_seconds(value) for value in (None, 0.0171, 1.5, 600, 7200, 7500)] == [
        "-",
        "17.1 ms",
        "1.5 s",
        "10 min",
        "2 h",
        "2 h 5 min",
    ]
