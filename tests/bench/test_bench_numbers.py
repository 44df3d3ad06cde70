"""Parsing and statistics of the bench."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bench import zipf
from bench.__main__ import COMPARED, GROUPS, PASSING_TRIES, Bench, check_share, summary, table
from bench.paths import Way
from bench.processes import MeasurementError
from bench.settings import Settings
from bench.spread import Spread, added_ratio, ratio
from bench.stream import Streamed, Times
from bench.wrk import Sample, parse
from bench.zipf import Row

NO_ERRORS = {"connect": 0, "read": 0, "write": 0, "status": 0, "timeout": 0}


def report(**changed: object) -> str:
    found = {"requests": 2000, "duration": 2_000_000, "p50": 1500, "p99": 9250, "errors": NO_ERRORS, **changed}
    return "Running 2s test @ http://127.0.0.1:1/hit\n  1 threads and 32 connections\n" + json.dumps(found) + "\n"


def test_a_report_becomes_rates_and_milliseconds() -> None:
    assert parse(report()) == Sample(requests=2000, rps=1000.0, p50_ms=1.5, p99_ms=9.25)


@pytest.mark.parametrize("kind", ["connect", "read", "write", "status", "timeout"])
def test_one_failed_request_fails_the_run(kind: str) -> None:
    with pytest.raises(MeasurementError, match=f"requests failed: {kind} 1"):
        parse(report(errors={**NO_ERRORS, kind: 1}))


def test_no_request_at_all_fails_the_run() -> None:
    with pytest.raises(MeasurementError, match="no request"):
        parse(report(requests=0))


@pytest.mark.parametrize("output", ["", "unable to connect to 127.0.0.1:1", "{}", "[]", '{"requests": "many"}'])
def test_what_is_no_report_is_an_error(output: str) -> None:
    with pytest.raises(MeasurementError, match="cannot be read"):
        parse(output)


def test_ratios_are_taken_between_neighbours() -> None:
    # The machine was half as fast in the second round: the ratio does not see it.
    assert ratio([80.0, 40.0, 81.0], [100.0, 50.0, 90.0]) == Spread(median=0.8, low=0.8, high=0.9)


def test_added_latency_is_compared_above_the_baseline() -> None:
    spread = added_ratio(value=[1.8, 2.2], other=[1.0, 1.4], baseline=[0.2, 0.6])
    assert spread.median == pytest.approx(2.0)
    assert spread.low == pytest.approx(2.0)


def test_added_latency_needs_something_to_compare_with() -> None:
    with pytest.raises(MeasurementError, match="no added latency"):
        added_ratio(value=[1.0], other=[0.5], baseline=[0.5])


def test_the_summary_has_medians_and_ratios() -> None:
    samples = [Sample(100, rate, p50, 2 * p50) for rate, p50 in ((900.0, 1.0), (1000.0, 3.0), (1100.0, 2.0))]
    found = summary({"hit": samples}, {"hit/echo": Spread(0.81234, 0.8, 0.9)})
    assert found == {
        "paths": {"hit": {"rps": 1000.0, "p50Ms": 2.0, "p99Ms": 4.0}},
        "ratios": {"hit/echo": {"median": 0.812, "low": 0.8, "high": 0.9}},
    }
    lines = table(found, Settings(seconds=5, rounds=3, connections=32, as_json=False)).splitlines()
    assert lines[1].split() == ["hit", "32", "1000", "2.000", "4.000"]
    assert lines[-1].split() == ["hit/echo", "0.812", "0.800", "0.900"]


def test_the_summary_has_the_first_byte_of_streams() -> None:
    streamed = Streamed.of([Times(2.5, 3.0), Times(4.5, 5.5), Times(2.6, 3.2)], [Times(2.0, 2.0)] * 3)
    found = summary({}, {}, streamed)
    assert found["stream"]["ttfbMs"]["median"] == 2.6
    assert found["stream"]["bodyAddedMs"] == {"median": 1.2, "low": 1.0, "high": 3.5}
    assert found["stream"]["addedMs"] == {"median": 0.6, "low": 0.5, "high": 2.5}
    lines = table(found, Settings(seconds=5, rounds=3, connections=32, as_json=False)).splitlines()
    assert lines[-2].split() == ["addedMs", "0.600", "0.500", "2.500"]


def test_a_path_with_another_number_of_connections_tells_it() -> None:
    found = summary({"hit": [Sample(100, 9.0, 1.0, 2.0)]}, {}, connections={"hit": 7, "other": 1})
    assert found["paths"]["hit"]["connections"] == 7
    lines = table(found, Settings(seconds=5, rounds=3, connections=32, as_json=False)).splitlines()
    assert lines[1].split() == ["hit", "7", "9", "1.000", "2.000"]


def test_the_table_of_caches_has_a_line_for_each_and_says_which_are_missing() -> None:
    rows = {"meshcache": Row(Spread(9000.4, 8000.0, 10000.0), 1.2344, 5.0, 0.1234)}
    missing = {"varnish": "varnishd is not installed"}
    lines = zipf.table(rows, missing).splitlines()
    assert lines[1].split() == ["meshcache", "9000", "8000", "10000", "1.234", "5.000", "12.3%"]
    assert lines[2].split(maxsplit=1) == ["varnish", "varnishd is not installed"]
    assert zipf.plain(rows, missing) == {
        "zipf": {
            "meshcache": {
                "rps": {"median": 9000.4, "low": 8000.0, "high": 10000.0},
                "p50Ms": 1.234,
                "p99Ms": 5.0,
                "origin": 0.1234,
            }
        },
        "missing": missing,
    }


def test_what_is_run_is_what_is_compared() -> None:
    for group, compared in zip(GROUPS, COMPARED, strict=True):
        assert {name for pair in compared for name in pair} == set(group)


def test_ways_that_seem_to_add_nothing_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    running = SimpleNamespace(ways={}, counter=None, streams=None)
    rounds = [[1.0, 0.9, 1.5, 2.0, 2.0]] * (PASSING_TRIES - 1) + [[1.0, 1.2, 1.5, 2.0, 2.0]]

    def in_turn(bench: Bench, names: tuple[str, ...], _connections: int) -> dict[str, list[Sample]]:
        taken = {name: [Sample(100, 100.0, ms, ms)] for name, ms in zip(names, rounds.pop(0), strict=True)}
        for name, samples in taken.items():
            bench.samples.setdefault(name, []).extend(samples)
        return taken

    monkeypatch.setattr(Bench, "_in_turn", in_turn)
    bench = Bench(running, Settings(1, 1, 1, as_json=True))
    bench._pass()
    assert bench.ratios["missAdded/echoAdded"].median == pytest.approx(5.0)
    assert [sample.p50_ms for sample in bench.samples["pass"]] == [1.2]
    rounds += [[1.0, 0.9, 1.5, 2.0, 2.0]] * PASSING_TRIES
    with pytest.raises(MeasurementError, match="no added latency"):
        bench._pass()


def test_a_hit_that_reaches_the_origin_is_none() -> None:
    way = Way("hit", "http://127.0.0.1:1/hit", reaches_origin=False)
    check_share(way, 0.001)
    with pytest.raises(MeasurementError, match=r"hit: 5\.0% of the requests reached the origin; none should"):
        check_share(way, 0.05)


def test_a_miss_that_does_not_reach_the_origin_is_none() -> None:
    way = Way("miss", "http://127.0.0.1:1/miss/", reaches_origin=True, unique=True)
    check_share(way, 1.002)
    with pytest.raises(MeasurementError, match=r"miss: only 90\.0%"):
        check_share(way, 0.9)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_settings_must_be_positive_whole_numbers(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SECONDS_PER_PATH", text)
    with pytest.raises(MeasurementError, match="SECONDS_PER_PATH"):
        Settings.from_environment()


def test_settings_have_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECONDS_PER_PATH", "ROUNDS", "CONNECTIONS", "JSON"):
        monkeypatch.delenv(name, raising=False)
    assert Settings.from_environment() == Settings(seconds=3, rounds=5, connections=32, as_json=False)
