"""`meshcache demo ab`, on real Envoy; and its words."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from pathlib import Path

import pytest

from meshcache.cli import main
from meshcache.cli.demo_text import verdict
from meshcache.demo import ab_policies
from meshcache.policy.compile import compile_documents
from meshcache.policy.sources import read_files


def test_the_policies_compile_before_and_after_the_swap(tmp_path: Path) -> None:
    folder = tmp_path
    ab_policies.write_policies(folder, 20)

    def compiled() -> tuple[float, float]:
        files = read_files([folder])
        assert len(files.files) == 5
        snapshot = compile_documents(files, generation=1, secret=b"s")
        arms = {arm.name: arm.policy for arm in snapshot.experiments[0].arms}
        control, candidate = arms[ab_policies.CONTROL], arms[ab_policies.CANDIDATE]
        return control.freshness.stale_while_revalidate, candidate.freshness.stale_while_revalidate

    assert compiled() == (0.0, ab_policies.STALE_SECONDS)
    ab_policies.swap_control(folder)
    assert compiled() == (ab_policies.STALE_SECONDS, ab_policies.STALE_SECONDS)


def test_a_verdict_is_told_with_its_bounds() -> None:
    primary = {"role": "primary", "metric": "hitRatio", "change": 0.09, "low": 0.05, "high": None, "state": "Better"}
    told = verdict({"estimates": [{"role": "guardrail"}, primary], "confidence": 0.95})
    assert told == "hitRatio +9.0 points (+5.0 to no bound at 95 %): Better"
    assert verdict({}) == ""
    assert verdict({"estimates": [primary | {"change": None}], "confidence": 0.95}) == ""


@pytest.mark.e2e
async def test_a_short_demonstration_beside_another_meshcache() -> None:
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # taken already: as good
            held.enter_context(socket.create_server(("127.0.0.1", 9464)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "meshcache", "demo", "ab", "--json", "--rate", "30"),
            *("--seconds", "5", "--warmup", "1", "--after", "5"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    found = json.loads(out)
    assert found["failed"] == 0, err
    assert set(found["arms"]) == set(found["afterSwap"]) == {ab_policies.CONTROL, ab_policies.CANDIDATE}
    for arms in (found["arms"], found["afterSwap"]):
        for arm in arms.values():
            assert 0 < arm["hits"] + arm["waitedForOrigin"] == arm["requests"]
            assert 16 <= arm["latencyP50Ms"] <= arm["latencyP95Ms"]
    assert 0 < found["swapMs"] < 10_000
    # So short a run need not show which is better; the status has to say what the numbers say.
    assert process.returncode == (0 if found["candidateBetter"] else 1)


@pytest.mark.parametrize("arguments", [["--seconds", "1"], ["--rate", "0"], ["--workers", "x"]])
def test_wrong_usage_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(("demo", "ab", *arguments))
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
