import asyncio
import socket
import struct

import msgspec
import pytest

from meshcache.extproc.control import (
    FROM_WORKER,
    MAX_MESSAGE_BYTES,
    TO_WORKER,
    Channel,
    Configure,
    ControlError,
    Drain,
    Drained,
    Installed,
    MetricsReport,
    Ping,
    Policies,
    Pong,
    Ready,
    Refused,
    WorkerOptions,
)
from meshcache.observe.metrics import Metrics


@pytest.fixture
async def pair():
    a, b = socket.socketpair()
    supervisor = await Channel.open(a, FROM_WORKER)
    worker = await Channel.open(b, TO_WORKER)
    yield supervisor, worker
    supervisor.close()
    worker.close()


@pytest.fixture
async def raw():
    a, b = socket.socketpair()
    channel = await Channel.open(a, FROM_WORKER)
    b.setblocking(False)
    yield channel, b
    channel.close()
    b.close()


async def test_every_message_arrives_as_it_was_sent(pair):
    supervisor, worker = pair
    metrics = Metrics()
    metrics.inc("requests_total", ("hit", "", "hot", "r", "a"))
    metrics.observe("request_stage_seconds", ("lookup",), 0.001)
    options = WorkerOptions(index=1, workers=2, socket_path="/s", data_dir="/d", warm_url="redis://x")
    for message in (
        Configure(options),
        Policies(7, "digest", (("a.yaml", "kind: ü"), ("b.yaml", ""))),
        Drain(2.5),
        Ping(3),
    ):
        await supervisor.send(message)
        assert await worker.receive() == message
    for message in (
        Ready(42),
        Installed(7),
        Refused(8, ("a.yaml:1:2: x",)),
        MetricsReport(metrics.snapshot()),
        Pong(3),
        Drained(),
    ):
        await worker.send(message)
        assert await supervisor.receive() == message


async def test_several_mebibytes_of_policies_pass(pair):
    supervisor, worker = pair
    message = Policies(1, "d", tuple((f"{n}.yaml", "x" * 500_000) for n in range(16)))
    sending = asyncio.create_task(supervisor.send(message))
    assert await worker.receive() == message
    await sending


async def test_close_between_messages_is_an_end(pair):
    supervisor, worker = pair
    worker.close()
    assert await supervisor.receive() is None


async def test_sending_to_one_that_is_gone_is_an_error_or_nothing(pair):
    supervisor, worker = pair
    worker.close()
    await asyncio.sleep(0)

    async def send_much():
        for _ in range(100):
            await supervisor.send(Policies(1, "d", (("a", "x" * 100_000),)))

    with pytest.raises(ControlError):
        await send_much()
    supervisor.post(Ping(1))


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!I", 5) + b"hello",
        struct.pack("!I", 0),
        struct.pack("!I", MAX_MESSAGE_BYTES + 1),
        struct.pack("!I", 4) + msgspec.msgpack.encode({"type": "unknown"})[:4],
    ],
)
async def test_what_is_not_a_message_is_an_error(raw, junk):
    channel, other = raw
    await asyncio.get_running_loop().sock_sendall(other, junk)
    with pytest.raises(ControlError):
        await channel.receive()


async def test_end_in_the_middle_of_a_message_is_an_error(raw):
    channel, other = raw
    await asyncio.get_running_loop().sock_sendall(other, struct.pack("!I", 100) + b"abc")
    other.close()
    with pytest.raises(ControlError, match="middle"):
        await channel.receive()


async def test_a_message_that_is_too_long_is_not_sent(pair):
    supervisor, _ = pair
    with pytest.raises(ControlError, match="longer"):
        await supervisor.send(Policies(1, "d", (("a", "x" * (MAX_MESSAGE_BYTES + 1)),)))


async def test_post_never_waits_for_a_peer_that_does_not_read(raw):
    channel, _ = raw
    for number in range(10_000):
        channel.post(Ping(number))
