"""What the bench says when a request to one of several caches has failed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from bench import peers
from bench.caches import Cache, lines, statuses
from bench.envoys import FLUSHED, bootstrap, direct_response, listener, running_envoy, write_failed
from bench.paths import get
from bench.processes import LOOPBACK, MeasurementError, free_port

if TYPE_CHECKING:
    from pathlib import Path


def test_a_failure_names_the_cache_the_phase_the_statuses_and_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "nginx.log"
    log.write_text("first\nsecond\nthird\nopen() failed (24: No file descriptors available)\n")
    cache = Cache("nginx", "http://127.0.0.1:1", log, failed=lambda: ["500"] * 47)
    with pytest.raises(MeasurementError) as raised, cache.doing("warm-up"):
        raise MeasurementError("requests failed: status 47")
    told = str(raised.value)
    assert told.startswith("nginx, warm-up: requests failed: status 47; it has answered 47 x 500\nits log:\nsecond\n")
    assert told.endswith("(24: No file descriptors available)")


def test_without_such_answers_it_says_so(tmp_path: Path) -> None:
    cache = Cache("envoy-cache", "http://127.0.0.1:1", tmp_path / "log", failed=lambda: lines(tmp_path / "failed"))
    (tmp_path / "log").touch()
    with pytest.raises(MeasurementError) as raised, cache.doing("round 2"):
        raise MeasurementError("timeout 1")
    assert str(raised.value) == "envoy-cache, round 2: timeout 1; it has answered nothing by a status of 400 or above"


def test_the_most_frequent_failures_come_first() -> None:
    failed = ["503 overflow"] * 2 + ["504 timeout"] * 3 + [f"5{number:02}" for number in range(10, 20)]
    told = statuses(failed)
    assert told.startswith("it has answered 3 x 504 timeout, 2 x 503 overflow, 1 x 510,")
    assert told.endswith("1 x 515, 4 other kinds")


def test_nginx_asks_for_no_more_files_than_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = peers.resource.RLIM_INFINITY
    for hard, expected in ((4096, 4096), (1 << 30, peers.MOST_FILES), (unlimited, peers.MOST_FILES)):
        monkeypatch.setattr(peers.resource, "getrlimit", lambda _, hard=hard: (1024, hard))
        assert peers.open_files() == expected


@pytest.mark.e2e
def test_envoy_tells_status_and_reason_of_what_it_has_refused(tmp_path: Path) -> None:
    port, failed = free_port(), tmp_path / "failed"
    refusing = listener("refusing", port, direct_response("no", {}))
    write_failed(refusing, failed)
    refusing["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"][0]["domains"] = ["here"]
    with running_envoy("refusing", bootstrap([refusing]), tmp_path):
        assert get(f"http://{LOOPBACK}:{port}/", {"host": "here"})[0] == 200
        assert get(f"http://{LOOPBACK}:{port}/")[0] == 404
        until = time.monotonic() + 60
        while not lines(failed) and time.monotonic() < until:
            time.sleep(FLUSHED / 4)
        assert lines(failed) == ["404 route_not_found"]
