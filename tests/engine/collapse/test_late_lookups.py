"""Look-ups from before an answer was stored, and the lease after it: one request goes to the origin all the same."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from crowds import COLLAPSING, Crowd

from cache_harness import Got, Rig, Sent
from cache_origin import by_field
from policy_texts import policies

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

STALE = policies(freshness="{defaultTtl: 10s}", collapse="{maxWait: 5s}")


async def late(rig: Rig, worker: int, meanwhile: Callable[[], Awaitable[object]], **more: Any) -> Got:
    """A request of `worker` that has looked below, and found nothing of use, when `meanwhile` happens."""
    with finding(rig, worker, meanwhile):
        sent = await rig.send("GET", worker=worker, **more)
    return await sent.finish() if isinstance(sent, Sent) else sent


@contextmanager
def finding(rig: Rig, worker: int, meanwhile: Callable[[], Awaitable[object]] | None = None) -> Iterator[list[bytes]]:
    """The keys that `worker` looks for below; after the first look `meanwhile` happens."""
    stack, keys = rig.workers[worker].stack, []
    find = stack.find

    async def found(key: bytes, *arguments: Any) -> Any:
        result = await find(key, *arguments)
        keys.append(key)
        if len(keys) == 1 and meanwhile is not None:
            await meanwhile()
        return result

    stack.find = found  # type: ignore[method-assign]
    try:
        yield keys
    finally:
        del stack.find


async def done(rig: Rig, sent: Sent) -> Got:
    """The answer has come, is written, and the leases are given back."""
    got = await sent.finish()
    await rig.settle()
    return got


async def test_a_pod_that_looked_too_early_looks_again(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2, pods=True) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        leader = await rig.forwarded("GET")
        got = await late(rig, 1, lambda: done(rig, leader))
        assert (got.body, got.decision, rig.origin.times) == (b"one", "collapsed", 1)
        assert rig.workers[1].meter.collapses == {"answered": 1}
        assert (await rig.get(worker=1)).decision == "hit"


async def test_those_that_wait_for_it_are_answered_with_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2, pods=True) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        leader = await rig.forwarded("GET")
        crowd = Crowd(rig)
        confirm = rig.workers[1].cache.leadership.confirm

        async def crowded(member: Any) -> None:
            if not crowd.tasks:
                await crowd.join(10, worker=1)
                assert crowd.waiting == 10
                await done(rig, leader)
            await confirm(member)

        rig.workers[1].cache.leadership.confirm = crowded  # type: ignore[method-assign]
        got = await rig.send("GET", worker=1)
        assert isinstance(got, Got)
        assert got.decision == "collapsed"
        assert {(one.body, one.decision) for one in await crowd.all()} == {(b"one", "collapsed")}
        assert rig.origin.times == 1


@pytest.mark.parametrize("pods", [True, False], ids=["pods", "workers"])
async def test_one_validation_among_those_that_hold_the_old_one(tmp_path: Path, pods: bool) -> None:
    async with Rig(tmp_path, STALE, workers=2, pods=pods) as rig:
        rig.origin.says("/a", b"one", headers={"etag": '"1"'})
        for worker in (0, 1):
            await rig.get(worker=worker)
        rig.clock.pass_by(15)
        leader = await rig.forwarded("GET")
        got = await late(rig, 1, lambda: done(rig, leader))
        assert (got.body, got.decision, rig.origin.times) == (b"one", "collapsed", 2)


async def test_a_worker_that_saw_an_empty_store_a_moment_too_early(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        stack = rig.workers[1].stack
        await done(rig, await rig.forwarded("GET", "/b"))
        before = stack.nowhere
        seen = before((), b"r" * 16)
        await done(rig, await rig.forwarded("GET"))
        asked = rig.origin.times
        answers = iter([seen])
        stack.nowhere = lambda *arguments: next(answers, None) or before(*arguments)  # type: ignore[method-assign]
        sent = await rig.send("GET", worker=1)
        assert isinstance(sent, Got)
        assert (sent.body, sent.decision, rig.origin.times) == (b"one", "collapsed", asked)


async def test_one_process_looks_into_its_memory_once_more(tmp_path: Path) -> None:
    async with Rig(tmp_path, STALE) as rig:
        rig.origin.says("/a", b"one", headers={"etag": '"1"'})
        await rig.get()
        rig.clock.pass_by(15)
        leader = await rig.forwarded("GET")
        got = await late(rig, 0, lambda: done(rig, leader))
        assert (got.body, got.decision, rig.origin.times) == (b"one", "hit", 2)


async def test_what_was_not_stored_nobody_looks_for(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2, pods=True) as rig:
        rig.origin.says("/a", b"one", cache_control="no-store")
        leader = await rig.forwarded("GET")
        with finding(rig, 1, lambda: done(rig, leader)) as keys:
            assert isinstance(await rig.send("GET", worker=1), Sent)
        assert len(keys) == 1
        assert rig.origin.times == 2


async def test_an_answer_for_other_clients_is_none_for_this_one(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2, pods=True) as rig:
        rig.origin.does("/a", by_field("accept-language"))
        leader = await rig.forwarded("GET", headers={"accept-language": "de"})
        got = await late(rig, 1, lambda: done(rig, leader), headers={"accept-language": "fr"})
        assert (got.body, got.decision, got.reason) == (b"accept-language=fr", "miss", "vary-miss")
        same = await late(rig, 1, lambda: done(rig, leader), headers={"accept-language": "de"})
        assert (same.body, rig.origin.times) == (b"accept-language=de", 2)


async def test_an_answer_that_is_purged_meanwhile_is_asked_for(tmp_path: Path) -> None:
    async with Rig(tmp_path, COLLAPSING, workers=2, pods=True) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=60")
        leader = await rig.forwarded("GET")

        async def stored_and_gone() -> None:
            await done(rig, leader)
            rig.origin.says("/a", b"two", cache_control="max-age=60")
            assert (await rig.ask("POST")).decision == "bypass"
            await rig.settle()

        got = await late(rig, 1, stored_and_gone)
        assert (got.body, got.decision, got.stored) == (b"two", "miss", True)
        assert (await rig.get(worker=1)).body == b"two"
        assert (await rig.get(worker=0)).body == b"two"


async def test_who_looked_after_it_was_stored_does_not_look_twice(tmp_path: Path) -> None:
    async with Rig(tmp_path, STALE, workers=2, pods=True) as rig:
        rig.origin.says("/a", b"one", cache_control="max-age=1")
        await rig.get()
        await rig.settle()
        rig.clock.pass_by(2)
        with finding(rig, 1) as keys:
            assert isinstance(await rig.send("GET", worker=1), Sent)
        assert len(keys) == 1
