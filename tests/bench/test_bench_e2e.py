"""The whole bench, as short as it goes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]


def run_bench(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench"],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


@pytest.mark.slow
def test_without_wrk_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    done = run_bench(PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [line for line in done.stderr.splitlines() if "apt-get install wrk" in line]
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name leaves room for socket paths, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="mcb-") as name:
        yield Path(name)


@pytest.mark.alone
@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_measures_every_path_and_leaves_nothing_running(folder: Path) -> None:
    done = run_bench(SECONDS_PER_PATH="1", ROUNDS="1", JSON="1", TMPDIR=str(folder))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["paths"]) >= {"direct", "proxy", "envoy-cache", "echo", "hit", "warm-hit", "miss"}
    assert all(path["rps"] > 0 and path["p50Ms"] <= path["p99Ms"] for path in found["paths"].values())
    assert set(found["ratios"]) >= {"hit/echo", "warm-hit/echo", "missAdded/echoAdded"}
    assert all(spread["low"] <= spread["median"] <= spread["high"] for spread in found["ratios"].values())
    assert set(found["stream"]) == {"ttfbMs", "echoTtfbMs", "addedMs", "bodyAddedMs"}
    # The rest of a stream takes some 200 ms.
    assert found["stream"]["ttfbMs"]["median"] > 0
    assert found["stream"]["addedMs"]["median"] < 100
    assert list(folder.iterdir()) == []
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in command_lines if str(folder).encode() in line]
