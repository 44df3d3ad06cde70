"""What becomes of the warm file when a worker ends in a way that a damaged one may be the reason for."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest
import structlog

from meshcache.extproc.child import WorkerProcess
from meshcache.extproc.control import Policies, WorkerOptions


async def ends_by(number: signal.Signals, data, **more) -> None:
    """A worker lives, and ends by this signal."""
    ended = asyncio.Event()
    worker = WorkerProcess(
        WorkerOptions(index=0, workers=1, socket_path=str(data / "w.sock"), data_dir=str(data), **more),
        policies=lambda: Policies(1, "", ()),
        restarted=ended.set,
        log=structlog.get_logger(),
        command=(sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})"),
    )
    keeping = asyncio.create_task(worker.keep())
    async with asyncio.timeout(60):
        await ended.wait()
    worker.kill()
    await keeping


@pytest.mark.parametrize(
    ("number", "more", "stays"),
    [
        (signal.SIGBUS, {}, False),
        (signal.SIGSEGV, {}, False),
        (signal.SIGKILL, {}, True),
        (signal.SIGTERM, {}, True),
        (signal.SIGBUS, {"warm_url": "redis://127.0.0.1:1/0"}, True),
    ],
)
async def test_a_warm_file_that_may_have_killed_a_worker_is_given_up(tmp_path, number, more, stays):
    current = tmp_path / "warm" / "current"
    current.parent.mkdir()
    current.write_text("1 abc def")
    await ends_by(number, tmp_path, **more)
    assert current.exists() is stays


@pytest.mark.parametrize("given", [None, "7"])
async def test_how_memory_is_handed_out_is_the_operators_to_change(tmp_path, monkeypatch, given):
    if given is None:
        monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    else:
        monkeypatch.setenv("MALLOC_ARENA_MAX", given)
    ended = asyncio.Event()
    said = tmp_path / "said"
    worker = WorkerProcess(
        WorkerOptions(index=0, workers=1, socket_path=str(tmp_path / "w.sock"), data_dir=str(tmp_path)),
        policies=lambda: Policies(1, "", ()),
        restarted=ended.set,
        log=structlog.get_logger(),
        command=(sys.executable, "-c", f"import os; open({str(said)!r}, 'w').write(os.environ['MALLOC_ARENA_MAX'])"),
    )
    keeping = asyncio.create_task(worker.keep())
    async with asyncio.timeout(60):
        await ended.wait()
    worker.kill()
    await keeping
    assert said.read_text() == (given or "2")


async def test_there_need_be_no_warm_file(tmp_path):
    await ends_by(signal.SIGSEGV, tmp_path)
