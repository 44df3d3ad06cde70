"""Streams of requests that wait for another's answer: Envoy is asked for patience, and whoever leaves is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from envoy_streams import body, request, response

from cache_harness import Rig
from meshcache.extproc import wire
from meshcache.extproc.conversation import ExternalProcessor
from meshcache.extproc.waits import LoopWaits
from policy_texts import policies

LOOKUP = 4.0
"""Seconds."""


def fresh() -> ProcessingRequest:
    return response(cache_control="max-age=60")


async def settled() -> None:
    """Return when everything has gone on as far as it can without waiting, however often the machine does other work.

    A timer alone may ring in the middle of it.
    """
    await asyncio.sleep(0.02)
    for _ in range(200):
        await asyncio.sleep(0)


class Slow:
    """A stream whose messages come when the test says so, and whose replies are taken when there is room for them."""

    def __init__(self, processor: ExternalProcessor) -> None:
        self._messages: asyncio.Queue[ProcessingRequest | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self.replies: list[ProcessingResponse] = []
        self.task = asyncio.create_task(processor.converse(self))

    async def read(self) -> ProcessingRequest | None:
        return await self._messages.get()

    async def write(self, reply: bytes) -> None:
        await self._room.wait()
        self.replies.append(ProcessingResponse.FromString(reply))

    async def break_off(self, why: str) -> NoReturn:
        raise AssertionError(why)

    async def send(self, *messages: ProcessingRequest | None) -> None:
        """Send messages; None for the end of the stream."""
        for message in messages:
            self._messages.put_nowait(message)
        await settled()

    async def leave(self) -> None:
        """As Envoy's reset does."""
        self.task.cancel()
        await settled()
        assert self.task.cancelled()

    async def send_and_leave(self, message: ProcessingRequest) -> None:
        """The reset comes while the message is worked on, before its reply is taken."""
        self._room.clear()
        await self.send(message)
        await self.leave()

    async def send_with_reset(self, message: ProcessingRequest) -> None:
        """The reset comes with the message, before anybody can look at it."""
        self._messages.put_nowait(message)
        await self.leave()

    @property
    def kinds(self) -> list[str]:
        return [reply.WhichOneof("response") or "hold" for reply in self.replies]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with Rig(tmp_path, policies(collapse="{maxWait: 5s}")) as rig:
        yield rig


@pytest.fixture
def processor(rig: Rig) -> ExternalProcessor:
    def fail(stage: str, error: Exception) -> None:
        raise AssertionError(stage) from error

    return ExternalProcessor(rig.cache, on_error=fail, lookup_timeout=LOOKUP)


async def begun(processor: ExternalProcessor) -> Slow:
    stream = Slow(processor)
    await stream.send(request())
    return stream


async def test_envoy_is_asked_for_patience_once_and_then_answered(processor: ExternalProcessor) -> None:
    leader, follower = await begun(processor), await begun(processor)
    assert leader.kinds == ["request_headers"]
    assert follower.kinds == ["hold"]
    patience = follower.replies[0].override_message_timeout.ToMilliseconds() / 1000
    # Less what has passed since it came: a machine may have other things to do.
    assert 5.5 < patience <= 5.0 + LOOKUP, "what the policy says, and the time of a look-up after it"
    await leader.send(fresh(), body(b"one", end=True))
    await follower.task
    assert follower.kinds == ["hold", "immediate_response"]
    assert follower.replies[1].immediate_response.body == b"one"
    await leader.task


async def test_a_follower_that_goes_to_the_origin_is_seen_to_the_end(processor: ExternalProcessor, rig: Rig) -> None:
    leader, follower = await begun(processor), await begun(processor)
    await leader.send(None)
    await leader.task
    assert follower.kinds == ["hold", "request_headers"]
    third = await begun(processor)
    assert third.kinds == ["hold"]
    await follower.send(fresh(), body(b"two", end=True))
    await follower.task
    await third.task
    assert third.replies[-1].immediate_response.body == b"two"
    assert (await rig.get()).body == b"two"


@pytest.mark.parametrize("when", ["waiting", "leading", "in the response", "in the body"])
async def test_a_client_that_leaves_at_any_time_strands_nobody(processor: ExternalProcessor, when: str) -> None:
    leader = await begun(processor)
    leaver = leader if when != "waiting" else await begun(processor)
    follower = await begun(processor)
    if when in ("in the response", "in the body"):
        await leader.send(fresh())
    if when == "in the body":
        await leader.send(body(b"half"))
    await leaver.leave()
    if when == "waiting":
        await leader.send(fresh(), body(b"whole", end=True))
    else:
        assert follower.kinds == ["hold", "request_headers"]
        await follower.send(fresh(), body(b"whole", end=True))
    await follower.task
    last = await begun(processor)
    assert last.replies[-1].immediate_response.body == b"whole"


async def test_a_reset_that_comes_with_a_message_strands_nobody(processor: ExternalProcessor, rig: Rig) -> None:
    early, late, last = await begun(processor), await begun(processor), await begun(processor)
    await early.send_with_reset(fresh())
    assert late.kinds == ["hold", "request_headers"]
    await late.send(fresh())
    await late.send_with_reset(body(b"ha"))
    assert last.kinds == ["hold", "request_headers"]
    await last.send(fresh(), body(b"whole", end=True))
    assert (await rig.get()).body == b"whole"


async def test_a_reset_that_comes_before_a_reply_is_taken_strands_nobody(
    processor: ExternalProcessor, rig: Rig
) -> None:
    early, late, last = await begun(processor), await begun(processor), await begun(processor)
    await early.send_and_leave(fresh())
    assert early.kinds == ["request_headers"]
    assert late.kinds == ["hold", "request_headers"]
    await late.send(fresh())
    await late.send_and_leave(body(b"ha"))
    assert late.kinds == ["hold", "request_headers", "response_headers"]
    await last.send(fresh(), body(b"wh"))
    await last.send_and_leave(body(b"ole", end=True))
    assert last.kinds == ["hold", "request_headers", "response_headers", "response_body"]
    assert (await rig.get()).body == b"whole", "what came whole is stored, whoever left"


async def test_a_leader_whose_answer_breaks_the_engine_strands_nobody(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    processor = ExternalProcessor(rig.cache, on_error=lambda stage, _: told.append(stage), lookup_timeout=LOOKUP)
    leader, follower = await begun(processor), await begun(processor)

    async def broken(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr("meshcache.engine.exchange.Exchange.on_response", broken)
        await leader.send(fresh())
    assert told == ["response_headers"]
    assert follower.kinds == ["hold", "request_headers"]
    await follower.send(fresh(), body(b"one", end=True))


async def test_a_wait_that_breaks_lets_the_request_go_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    processor = ExternalProcessor(rig.cache, on_error=lambda stage, _: told.append(stage), lookup_timeout=LOOKUP)
    leader = await begun(processor)

    async def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("meshcache.engine.exchange.Exchange.wait", broken)
    follower = await begun(processor)
    assert follower.kinds == ["hold", "request_headers"]
    assert told == ["request"]
    await leader.send(fresh(), body(b"one", end=True))


def test_the_message_that_asks_for_patience() -> None:
    message = ProcessingResponse.FromString(wire.hold(10.25))
    assert message.WhichOneof("response") is None
    assert message.override_message_timeout.ToMilliseconds() == 10250
    assert ProcessingResponse.FromString(wire.hold(0.0)).override_message_timeout.ToMilliseconds() == 1


async def test_a_signal_carries_its_first_value() -> None:
    signal = LoopWaits().signal()
    signal.set(1)
    signal.set(2)
    assert await signal.wait() == 1


async def test_a_signal_may_be_set_when_nobody_waits_any_more() -> None:
    waits = LoopWaits()
    signal = waits.signal()
    task = asyncio.ensure_future(signal.wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    signal.set(1)


async def test_a_timer_that_is_cancelled_does_not_ring() -> None:
    waits = LoopWaits()
    rung: list[int] = []
    before = waits.now()
    waits.later(0.01, lambda: rung.append(1))
    waits.later(0.01, lambda: rung.append(2)).cancel()
    await waits.sleep(0.05)
    assert rung == [1]
    assert waits.now() - before >= 0.045
