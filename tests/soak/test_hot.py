"""The soak of the hot tier in Envoy: its judgement, and a run of a few seconds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from soak.hot import Origin, Settings, Watcher, judge, vm_sizes
from soak.sizes import LARGEST, SMALLEST, body_of, size_of, version_in

MIB = 1 << 20
SETTINGS = Settings(100, 10, 16 * MIB, 100, 1)


def judged(watcher: Watcher, sizes: list[int], done: int = 100) -> list[str]:
    problems: list[str] = judge(SETTINGS, [watcher], [sizes], [MIB], done, 1.0, Origin())["problems"]
    return problems


def test_what_is_a_problem() -> None:
    well = Watcher("", 100, 1, Counter(), answers=10, hot=9)
    assert judged(well, [17 * MIB, 17 * MIB]) == []
    assert judged(well, [22 * MIB, 17 * MIB]) == ["a VM has 22.0 MiB, more than 17.6"]
    assert judged(well, [17 * MIB], done=99) == ["only 99 of 100 requests were made"]
    assert judged(Watcher("", 100, 1, Counter(), answers=10, hot=1), []) == ["only 10% were answered by the filter"]
    assert judged(Watcher("", 100, 1, Counter(), answers=9, hot=9, wrong=["x"]), []) == ["wrong: x"]


def test_objects_are_of_all_sizes() -> None:
    sizes = [size_of(number) for number in range(1, 2000)]
    assert min(sizes) < 2 * SMALLEST
    assert max(sizes) > LARGEST * 0.9
    assert 0.2 < sum(size < 1000 for size in sizes) / len(sizes) < 0.6


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
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{root}:{root / 'tests'}"}
    environment |= {"WASM": "2000", "SECONDS": "10", "BUDGET": "12", "OBJECTS": "500", "ROUND": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "soak.hot"], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["problems"] == []
    assert found["watched"] > 100
