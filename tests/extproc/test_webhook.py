"""Decisions sent to a webhook: tried a few times, bounded, and without a word of the address in any log."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus

import pytest
import structlog
from supervised import until

from meshcache.extproc import webhook
from meshcache.extproc.webhook import MOST_WAITING, Notifier
from meshcache.policy.compiled import Webhook


class Receiver:
    """An HTTP server that answers with the status codes it is given, the last one for good."""

    def __init__(self, statuses: Sequence[int]) -> None:
        self.statuses = list(statuses)
        self.bodies: list[dict[str, object]] = []
        self.heads: list[str] = []
        self.silent = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(next(line.partition(":")[2] for line in head.lower().splitlines() if "content-length" in line))
            self.bodies.append(json.loads(await reader.readexactly(length)))
            self.heads.append(head)
            if self.silent:
                await asyncio.sleep(30)
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            phrase = HTTPStatus(status).phrase
            writer.write(f"HTTP/1.1 {status} {phrase}\r\ncontent-length: 0\r\nlocation: /x\r\n\r\n".encode())
            await writer.drain()
        writer.close()


Notified = tuple[Notifier, Receiver, list[str]]
"""What is told, to whom, and what came of it."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "FIRST_PAUSE", 0.01)


@contextlib.asynccontextmanager
async def notified(statuses: Sequence[int], patience: float = 10.0) -> AsyncIterator[Notified]:
    receiver = Receiver(statuses)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outcomes: list[str] = []
    address = Webhook(f"http://user:hunter2@127.0.0.1:{port}/T0/S3CR3T?token=abc", patience)
    notifier = Notifier(lambda: address, structlog.get_logger(), outcomes.append)
    running = asyncio.create_task(notifier.run())
    try:
        yield notifier, receiver, outcomes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()


async def told(notifier: Notifier, outcomes: list[str], message: dict[str, object], done: int = 1) -> None:
    notifier.tell(message)
    await until(lambda: len(outcomes) >= done)


async def test_a_message_is_sent_as_json() -> None:
    async with notified([204]) as (notifier, receiver, outcomes):
        await told(notifier, outcomes, {"event": "x", "phase": "RolledBack"})
    assert outcomes == ["sent"]
    assert receiver.bodies == [{"event": "x", "phase": "RolledBack"}]
    assert "POST /T0/S3CR3T?token=abc" in receiver.heads[0]


@pytest.mark.parametrize(
    ("statuses", "tries", "outcome"),
    [([503, 500, 200], 3, "sent"), ([500], webhook.TRIES, "failed"), ([404], 1, "failed"), ([302], 5, "failed")],
)
async def test_it_is_tried_a_few_times_where_that_may_help(statuses: list[int], tries: int, outcome: str) -> None:
    with structlog.testing.capture_logs() as entries:
        async with notified(statuses) as (notifier, receiver, outcomes):
            await told(notifier, outcomes, {"event": "x"})
    assert (outcomes, len(receiver.bodies)) == ([outcome], tries)
    assert not any(secret in str(entries) for secret in ("hunter2", "S3CR3T", "abc", "user"))
    assert [entry["host"] for entry in entries] == (["127.0.0.1"] if outcome == "failed" else [])


async def test_trouble_is_told_once_and_its_end_too() -> None:
    with structlog.testing.capture_logs() as entries:
        async with notified([404, 404, 404, 200]) as (notifier, _, outcomes):
            for number in range(5):
                await told(notifier, outcomes, {"event": "x"}, number + 1)
    assert outcomes == ["failed"] * 3 + ["sent"] * 2
    assert [entry["log_level"] for entry in entries] == ["warning", "info"]


async def test_a_receiver_that_says_nothing_costs_its_timeout_and_holds_up_nobody() -> None:
    async with notified([200], patience=0.05) as (notifier, receiver, outcomes):
        receiver.silent = True
        before = asyncio.get_running_loop().time()
        for _ in range(MOST_WAITING + 50):
            notifier.tell({"event": "x"})
        assert asyncio.get_running_loop().time() - before < 2.0, "nobody waits for any of them"
        assert outcomes.count("dropped") >= 49
        await until(lambda: "failed" in outcomes)


async def test_an_answer_without_end_is_not_read() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"}")
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
                await writer.drain()
                sent += 1
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    address = Webhook(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", 3.0)
    outcomes: list[str] = []
    notifier = Notifier(lambda: address, structlog.get_logger(), outcomes.append)
    running = asyncio.create_task(notifier.run())
    notifier.tell({"n": 1})
    await until(lambda: bool(outcomes))
    assert outcomes == ["sent"]
    assert sent < 20
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    server.close()


@pytest.mark.parametrize(
    "url", [f"http://{'a' * 70}.example/", "http://[::1/", "http://x\x00y/", "http://127.0.0.1:99999/"]
)
async def test_an_address_that_leads_nowhere_ends_nothing(url: str) -> None:
    outcomes: list[str] = []
    notifier = Notifier(lambda: Webhook(url, 1.0), structlog.get_logger(), outcomes.append)
    running = asyncio.create_task(notifier.run())
    with structlog.testing.capture_logs() as logs:
        for number in range(2):
            notifier.tell({"n": number})
        await until(lambda: len(outcomes) == 2, 10)
    assert outcomes == ["failed"] * 2
    assert len(logs) == 1
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_without_an_address_nothing_waits() -> None:
    notifier = Notifier(lambda: None, structlog.get_logger())
    for _ in range(3):
        notifier.tell({"event": "x"})
    assert notifier._waiting.empty()
