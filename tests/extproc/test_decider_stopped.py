"""A decider that the system stops in the middle does not decide when it goes on: real processes, a real store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fixtures_valkey import LocalValkey
from meshcache.experiment.state import Record
from meshcache.extproc.decider import LEASE

SCRIPT = Path(__file__).with_name("decider_process.py")


START = 60.0
"""Seconds in which a process has begun on a machine with much else to do."""


def until(condition: Callable[[], bool], seconds: float = START) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_who_was_stopped_between_looking_and_writing_decides_nothing(valkey: LocalValkey, tmp_path: Path) -> None:
    logs = {name: tmp_path / f"{name}.log" for name in "ab"}
    for log in logs.values():
        log.touch()
    path = os.pathsep.join(sys.path)

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(SCRIPT), valkey.unix_url, str(tmp_path), name]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})

    def record() -> Record:
        with valkey.client() as client:
            (name,) = client.keys("mc1:{x*}:records")
            (value,) = client.hvals(name)
        return msgspec.json.decode(value[value.index(b'{"name"') :], type=Record)

    processes = [start("a")]
    try:
        until(lambda: "['Counting']" in logs["a"].read_text(), START)
        processes.append(start("b"))
        # It takes over from one that was alive a moment ago.
        until(lambda: "follows" in logs["b"].read_text(), START)
        # What it sees is a breach, and it is stopped before it can write the rollback down.
        (tmp_path / "stop-a").touch()
        until(lambda: "State:\tT" in Path(f"/proc/{processes[0].pid}/status").read_text())
        before = record()
        assert before.phase == "Running"
        began = time.monotonic()
        until(lambda: "leads" in logs["b"].read_text())
        assert time.monotonic() - began < LEASE + 15
        os.kill(processes[0].pid, signal.SIGCONT)
        until(lambda: "follows" in logs["a"].read_text())
        time.sleep(0.3)
        # The other one looks at the same experiment without harm, and it alone decides.
        assert record() == before
        assert "RolledBack" not in logs["a"].read_text() + logs["b"].read_text()
        (tmp_path / "harm-b").touch()
        until(lambda: "['RolledBack']" in logs["b"].read_text())
        assert record().phase == "RolledBack"
        assert record().version == before.version + 1
    finally:
        for process in processes:
            process.kill()
            process.wait()
