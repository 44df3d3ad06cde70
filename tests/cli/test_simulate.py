"""`meshcache simulate`: the command as it is typed, on traces small enough to know the answer."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from meshcache.cli import main

Simulate = Callable[..., tuple[int, str, str]]

POLICIES = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: short}
spec: {eviction: ttl, freshness: {mode: override, defaultTtl: 10s}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: long}
spec: {eviction: lru, freshness: {mode: override, defaultTtl: 1h}, tiers: {hot: {ttl: 1h}}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: all}
spec: {match: [{path: {prefix: /}}], policyRef: {name: short}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheExperiment
metadata: {name: longer}
spec:
  routeRef: {name: all}
  unit: [{header: x-user-id}]
  arms:
    - {name: control, policyRef: {name: short}, weight: 50}
    - {name: candidate, policyRef: {name: long}, weight: 50}
"""


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "all.yaml").write_text(POLICIES)
    # Every 4 seconds one of two objects: each is 8 seconds old at its next request.
    lines = [f"{1700000000 + 4 * place},u{place % 8},/{place % 2},1000\n" for place in range(100)]
    (tmp_path / "trace.csv").write_text("time,user,url,bytes\n" + "".join(lines))
    (tmp_path / "keys").write_text("".join(f"{key}\n" for key in "abcabcabdabd"))

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["simulate", *arguments])
        output = capsys.readouterr()
        return int(ended.value.code or 0), output.out, output.err

    return run


def test_policies_side_by_side(simulate: Simulate) -> None:
    status, out, _ = simulate("trace.csv", "--policy", "short", "--policy", "long", "--json")
    assert status == 0
    result = json.loads(out)
    short, long = result["policies"]
    assert (short["name"], long["name"]) == ("short", "long")
    assert long["total"]["originRequests"] == 2
    assert long["total"]["hitRatio"] == 0.98
    # Each lives for one more request, 8 seconds after it came.
    assert short["total"]["hitRatio"] == 0.5
    assert short["total"]["latency"]["mean"] == pytest.approx((0.017 + 0.184) / 2)
    assert result["trace"]["requests"] == 100
    assert result["curve"]["missRatio"][-1] == pytest.approx(0.02)
    assert "stale-swr" not in short["total"]["decisions"]


def test_arms_of_an_experiment(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = simulate("trace.csv", "--json")
    (found,) = json.loads(out)["policies"]
    arms = {arm["arm"]: arm for arm in found["arms"]}
    assert arms.keys() == {"control", "candidate"}
    assert arms["candidate"]["policy"] == "long"
    assert sum(arm["counts"]["requests"] for arm in arms.values()) == 100
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = simulate("trace.csv")
    assert "longer/control (short)" in out
    assert "longer/candidate (long)" in out
    assert " to origin " in out
    assert "…" not in out, "nothing is cut short, however narrow the terminal"


def test_an_eviction_by_itself(simulate: Simulate) -> None:
    status, out, _ = simulate("keys", "--format", "keys", "--eviction", "lru", "--capacity-objects", "3", "--json")
    assert (status, json.loads(out)) == (0, {"requests": 12, "missRatio": 4 / 12})
    _, out, _ = simulate("keys", "--eviction", "lru", "--capacity-objects", "3", "--capacity-objects", "1", "--json")
    assert json.loads(out) == [
        {"capacityObjects": 3, "requests": 12, "missRatio": 4 / 12},
        {"capacityObjects": 1, "requests": 12, "missRatio": 1.0},
    ]
    _, out, _ = simulate("keys", "--eviction", "lru", "--capacity-bytes", "1Mi")
    assert "1,048,576 bytes  0.3333 missed" in out


def test_a_report_is_written(simulate: Simulate, tmp_path: Path) -> None:
    status, _, _ = simulate("trace.csv", "--html", "report.html")
    assert status == 0
    assert (tmp_path / "report.html").read_text().count("<figure>") == 2
    status, out, err = simulate("trace.csv", "--html", "absent/report.html")
    assert (status, err) == (1, "meshcache: --html absent/report.html: No such file or directory\n")
    assert "hits by bytes" in out, "what was worked out is not lost"


def test_a_standard_input_that_is_closed(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert simulate("-") == (1, "", "meshcache: -: standard input is closed\n")


def test_standard_input_and_bad_lines(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"time,url\n1700000000,/a\nwhen,/b\n1700000001,/a\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    status, out, err = simulate("-", "--policy", "long", "--json")
    assert status == 0
    assert json.loads(out)["trace"]["badLines"] == 1
    assert err.startswith("meshcache: 1 line of the trace could not be read; line 3: ")


def test_nothing_stored_is_told(simulate: Simulate) -> None:
    policy = "kind: CachePolicy\nmetadata: {name: plain}\nspec: {eviction: lru, freshness: {mode: rfc9111}}"
    Path("plain.yaml").write_text(f"apiVersion: meshcache.dev/v1alpha1\n{policy}\n")
    status, _, err = simulate("trace.csv", "--policies", "plain.yaml", "--no-origin-validators", "--policy", "plain")
    assert status == 0
    assert "plain: nothing was stored (no-freshness 100)" in err
    assert "--origin-cache-control" in err


def test_lifetimes_are_asked_for_where_they_are_missing_only(simulate: Simulate) -> None:
    Path("large.csv").write_text("time,url,bytes\n1700000000,/a,99999999999\n")
    _, _, err = simulate("large.csv", "--policy", "long")
    assert err == "meshcache: long: nothing was stored (too-large 1)\n"


def test_a_trace_that_no_route_fits_is_told_what_to_do(simulate: Simulate, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.csv").write_text("time,url\n1700000000,https://other.example/b\n")
    route = "kind: CacheRoute\nmetadata: {name: r}\nspec: {match: [{hosts: [a.example]}], policyRef: {name: p}}"
    policy = "kind: CachePolicy\nmetadata: {name: p}\nspec: {freshness: {defaultTtl: 30s}}"
    version = "apiVersion: meshcache.dev/v1alpha1\n"
    Path("narrow.yaml").write_text(f"{version}{route}\n---\n{version}{policy}\n")
    status, _, err = simulate("elsewhere.csv", "--policies", "narrow.yaml")
    assert status == 0
    assert "narrow.yaml: no request is cached; " in err
    assert "--policy NAME" in err
    assert simulate("elsewhere.csv", "--policies", "narrow.yaml", "--policy", "p")[2] == ""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["absent.log"], 1, "absent.log: No such file or directory"),
        (["trace.csv", "--policies", "absent"], 1, "the policies in absent are refused"),
        (["trace.csv", "--policy", "none"], 1, "--policy none: policies has no such policy (it has: long, short)"),
        (["keys", "--format", "json"], 1, "the trace holds no request that could be read: line 1: "),
        (["keys", "--format", "yaml"], 2, "--format: expected one of common, envoy, json"),
        (["keys", "--eviction", "fifo", "--capacity-objects", "1"], 2, "--eviction: expected one of ttl, lru"),
        (["keys", "--eviction", "lru"], 2, "--eviction: give either --capacity-objects or --capacity-bytes"),
        (["keys", "--capacity-objects", "1"], 2, "--capacity-objects: goes with --eviction (see"),
        (["keys", "--capacity-bytes", "1Mi"], 2, "--capacity-bytes: goes with --eviction (see"),
        (["keys", "--eviction", "lru", "--policy", "short"], 2, "--policy: does not go with --eviction (see"),
        (["keys", "--eviction", "lru", "--html", "a.html"], 2, "--html: does not go with --eviction (see"),
        (["keys", "--hit-latency", "hot=1ms"], 2, "--hit-latency: says nothing of warm and cold"),
        (["keys", "--hit-latency", "fast=1ms"], 2, "--hit-latency: expected hot, warm or cold before `=`"),
        (["keys", "--miss-latency", "184"], 2, "--miss-latency: expected a duration"),
        (["keys", "--hit-latency", "hot=1ms,hot=2ms,warm=1ms,cold=1ms"], 2, "--hit-latency: names hot twice"),
        (["keys", "--rate", "inf"], 2, "--rate: expected at most 1000000"),
        (["keys", "--host", "http://a.example/"], 2, "--host: expected HOST or HOST:PORT"),
        (["keys", "--host", ""], 2, "--host: expected HOST or HOST:PORT"),
        (["keys", "--origin-cache-control", "max-age=1\nx: y"], 2, "--origin-cache-control: expected a value such as"),
        (["keys", "--data", ""], 2, "--data: expected a path, got an empty text"),
        (["keys", "--hot-bytes", "0"], 2, "--hot-bytes: expected at least 1 byte"),
    ],
)
def test_what_is_wrong_is_one_line(simulate: Simulate, arguments: list[str], status: int, message: str) -> None:
    found, out, err = simulate(*arguments)
    assert (found, out) == (status, "")
    assert f"meshcache: {message}" in err
    assert err.splitlines()[-1].startswith("meshcache: ")
