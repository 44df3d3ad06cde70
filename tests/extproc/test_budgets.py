"""A worker's shares of the pod's memory."""

from __future__ import annotations

import pytest

from meshcache.extproc.assembly import build
from meshcache.extproc.budgets import DEFAULT_HOT_BYTES, LEAST_COPY_BYTES, Shares
from meshcache.extproc.control import WorkerOptions
from meshcache.observe import logs
from meshcache.observe.metrics import Metrics

MIB = 1 << 20


@pytest.mark.parametrize("hot", [0, MIB, 48 * MIB, 256 * MIB, 4096 * MIB])
@pytest.mark.parametrize("workers", [1, 2, 3, 16])
def test_what_all_workers_have_is_the_pods(hot, workers):
    shares = Shares.of(hot, workers)
    pod = hot or DEFAULT_HOT_BYTES
    assert shares.hot * workers <= pod
    assert shares.copies * workers <= max(pod, workers * LEAST_COPY_BYTES)
    # What a worker may copy it can also queue and verify, or it would have copied in vain.
    assert shares.queue >= min(shares.copies, 64 * MIB)
    assert shares.opening >= shares.queue
    assert shares.opening <= max(shares.copies, 128 * MIB)


def test_one_worker_by_default_has_what_it_always_had():
    assert Shares.of(0, 1) == Shares(256 * MIB, 256 * MIB, 64 * MIB, 128 * MIB)


def test_two_workers_in_a_small_pod():
    assert Shares.of(48 * MIB, 2) == Shares(24 * MIB, 24 * MIB, 24 * MIB, 24 * MIB)


async def test_a_worker_is_built_with_its_shares(tmp_path):
    options = WorkerOptions(index=0, workers=2, socket_path="", data_dir=str(tmp_path), hot_bytes=48 * MIB)
    service = await build(options, Metrics(), logs.get_logger())
    stack = service._stack
    assert stack.memory.budget_bytes == 24 * MIB
    assert service._cache.copies.limit == 24 * MIB
    assert {lower._queue_bytes for lower in stack._lower.values()} == {24 * MIB}
    assert stack._opener._opening_bytes == 24 * MIB
    await service.close()
