"""The soak of the hot tier in Envoy: its judgement, and a run of a few seconds."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from typing import Any

import pytest

from soak.hot import Counted, Settings, judge, vm_sizes
from soak.hot_origin import Origin
from soak.sizes import LARGEST, SMALLEST, body_of, number_of, size_of, version_in
from soak.started import Started
from soak.watcher import Known, Watcher

MIB = 1 << 20
SETTINGS = Settings(1000, 10, 16 * MIB, 100, 1)


def watcher(**more: Any) -> Watcher:
    return Watcher(0, 100, 1, Known(Counter()), **{"answers": 10, "made": 3, **more})


def judged(
    one: Watcher | None = None,
    sizes: tuple[int, ...] = (17, 17),
    own: tuple[int, ...] = (50, 60, 60, 61),
    done: int = 1000,
    made: int = 3,
    **counted: int,
) -> list[str]:
    origin = Origin(asked=10, made=made)
    numbers = Counted(**{"fills": 30, "evictions": 20, "hits": 990, **counted})
    looks = [[size * MIB for size in sizes]]
    found = judge(SETTINGS, [one or watcher()], looks, [size * MIB for size in own], done, 1.0, origin, numbers)
    problems: list[str] = found["problems"]
    return problems


def test_what_is_a_problem() -> None:
    assert judged() == []
    assert judged(sizes=(22, 17)) == ["a VM has 22.0 MiB, more than 17.6"]
    assert judged(own=(40, 50, 50, 56)) == ["Envoy grew by 12.0%"]
    assert judged(done=999) == ["only 999 of 1000 requests were made"]
    assert judged(hits=101) == ["only 10% were answered by the filter"]
    assert judged(evictions=9) == ["only 9 evictions, too few to tell anything"]
    assert judged(watcher(wrong=["x"])) == ["wrong: x"]
    assert judged(watcher(made=0), made=0) == ["nothing was changed by a POST"]


def test_what_is_made_and_told_has_to_agree() -> None:
    # A client that is stopped may not hear of what it had made last.
    assert judged(made=4) == []
    assert judged(made=5) == ["the origin has made 5 versions, clients were told of 3"]
    assert judged(made=2) == ["the origin has made 2 versions, clients were told of 3"]


def test_a_watcher_knows_what_is_wrong() -> None:
    one = watcher()
    head = b"HTTP/1.1 200 OK\r\ncache-status: meshcache; hit; detail=tier=wasm\r\n\r\n"
    one._got("/hot/7", 3, head, body_of("/hot/7", 3))
    one._got("/hot/7", 3, head.replace(b"wasm", b"hot"), body_of("/hot/7", 4))
    assert (one.answers, one.hot, one.wrong) == (12, 1, [])
    one._got("/hot/7", 3, head, body_of("/hot/7", 2))
    one._got("/hot/7", 3, head, body_of("/hot/8", 3))
    one._got("/hot/7", 3, head.replace(b"200", b"503"), body_of("/hot/7", 3))
    assert one.wrong == ["GET /hot/7: 200, 2 for 3", "GET /hot/7: 200, None for 3", "GET /hot/7: 503, 3 for 3"]


def test_objects_are_of_all_sizes() -> None:
    for version in range(3):
        sizes = [size_of(number, version) for number in range(2000)]
        assert min(sizes) < 2 * SMALLEST
        assert max(sizes) > LARGEST * 0.9
        assert 0.4 < sum(size < 1000 for size in sizes) / len(sizes) < 0.8


def test_some_objects_are_asked_for_far_more_often_and_it_moves_on() -> None:
    rng = random.Random(1)
    shares = [rng.random() for _ in range(20_000)]
    asked = Counter(number_of(share, 3000, 0) for share in shares)
    assert 0.27 < asked[0] / len(shares) < 0.31
    assert 0.02 < sum(count for number, count in asked.items() if number >= 1000) / len(shares) < 0.06
    assert set(asked) < set(range(3000))
    assert Counter((number_of(share, 3000, 2990) - 2990) % 3000 for share in shares) == asked
    assert number_of(1 - 2**-53, 3000, 0) in range(3000)


def test_a_body_says_what_it_is() -> None:
    body = body_of("/hot/7", 3)
    assert version_in("/hot/7", body) == 3
    for wrong in (body[:-1], body + b"\n", body[:-1] + b"\0", body_of("/hot/70", 3), b"", b"/hot/7#x\n"):
        assert version_in("/hot/7", wrong) is None


def test_a_process_without_webassembly_has_no_vm() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert vm_sizes(process.pid) == []
        process.kill()


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_short_soak() -> None:
    # Of so many the stores are full after half, whatever the speed.
    soak = Started(WASM="6000", SECONDS="60", BUDGET="9", OBJECTS="3000", ROUND="2")
    output, errors = soak.process.communicate()
    assert soak.process.returncode == 0, errors
    found = json.loads(output.splitlines()[-1])
    assert found["problems"] == []
    assert found["watched"] > 100
    assert found["originAsked"] <= found["requests"] + found["watched"] - found["hits"]


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
@pytest.mark.parametrize("seconds", [0.1, 0.5, 2.0])
def test_an_interrupted_start_ends_in_one_line_and_leaves_nothing_running(seconds: float) -> None:
    soak = Started(WASM="1000000")
    # Before that it is Python that starts, which says in its own way that it was interrupted.
    soak.wait_for("loading")
    time.sleep(seconds)
    soak.process.send_signal(signal.SIGINT)
    output, errors = soak.process.communicate(timeout=60)
    assert soak.process.returncode == 130, errors
    assert output == ""
    assert errors.splitlines()[-1] == "soak: interrupted"
    assert "Traceback" not in errors
    assert soak.running() == set()
