from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.threads import Threads


async def test_results_and_errors_reach_the_caller() -> None:
    threads = Threads("t", 2)
    assert await threads.run(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    assert await threads.run(lambda: threading.current_thread().name) in {"t-0", "t-1"}
    await threads.close(1.0)


async def test_the_queue_is_bounded() -> None:
    threads = Threads("t", 1, longest_queue=2)
    gate, begun = threading.Event(), threading.Event()
    running = asyncio.ensure_future(threads.run(lambda: begun.set() or gate.wait()))
    await asyncio.to_thread(begun.wait)
    waiting = [asyncio.ensure_future(threads.run(lambda: 1)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TierError) as caught:
        await threads.run(lambda: 1)
    assert caught.value.kind is Trouble.BUSY
    gate.set()
    assert await asyncio.gather(running, *waiting) == [True, 1, 1]
    await threads.close(1.0)


async def test_a_cancelled_call_that_waits_is_skipped() -> None:
    threads = Threads("t", 1)
    gate, ran = threading.Event(), []
    running = asyncio.ensure_future(threads.run(gate.wait))
    given_up = asyncio.ensure_future(threads.run(ran.append, "given up"))
    await asyncio.sleep(0.05)
    given_up.cancel()
    await asyncio.sleep(0)
    gate.set()
    await running
    await threads.run(ran.append, "kept")
    assert ran == ["kept"]
    await threads.close(1.0)


@pytest.mark.parametrize("given_up", [False, True])
async def test_an_idle_thread_holds_on_to_nothing(given_up: bool) -> None:
    class Large:
        pass

    threads = Threads("t", 1)
    gate = threading.Event()
    running = asyncio.ensure_future(threads.run(gate.wait))
    large = Large()
    held = weakref.ref(large)
    call = asyncio.ensure_future(threads.run(id, large))
    del large
    await asyncio.sleep(0)
    if given_up:
        call.cancel()
        await asyncio.sleep(0)
    gate.set()
    await running
    if not given_up:
        await call
    del call
    async with asyncio.timeout(5):
        while held() is not None:  # noqa: ASYNC110  nothing to await
            await asyncio.sleep(0.005)
    await threads.close(1.0)


async def test_a_call_that_was_given_up_holds_nothing_while_the_threads_hang() -> None:
    class Large:
        pass

    threads = Threads("t", 1)
    gate, begun = threading.Event(), threading.Event()
    stuck = asyncio.ensure_future(threads.run(lambda: begun.set() or gate.wait()))
    await asyncio.to_thread(begun.wait)
    large = Large()
    held = weakref.ref(large)
    call = asyncio.ensure_future(threads.run(id, large))
    del large
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    del call
    # What is running now still holds what woke it.
    await asyncio.sleep(0)
    gc.collect()
    assert held() is None
    gate.set()
    assert await stuck
    assert await threads.run(lambda: 1) == 1, "what was given up is passed over"
    await threads.close(1.0)


async def test_closing_refuses_new_calls_and_does_not_wait_for_ever() -> None:
    threads = Threads("t", 1)
    gate, begun = threading.Event(), threading.Event()
    stuck = asyncio.ensure_future(threads.run(lambda: begun.set() or gate.wait()))
    await asyncio.to_thread(begun.wait)
    began = time.monotonic()
    await threads.close(0.1)
    assert time.monotonic() - began < 5
    with pytest.raises(TierError):
        await threads.run(lambda: 1)
    gate.set()
    assert await stuck


def test_a_stuck_call_does_not_keep_the_process() -> None:
    program = (
        "import asyncio, time\n"
        "from meshcache.tiers.threads import Threads\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.1):\n"
        "            await Threads('t', 1).run(time.sleep, 60)\n"
        "    except TimeoutError:\n"
        "        pass\n"
        "asyncio.run(main())\n"
    )
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0
    assert time.monotonic() - began < 40
