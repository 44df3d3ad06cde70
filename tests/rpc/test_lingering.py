from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from meshcache.rpc import frames
from meshcache.rpc.frames import Code
from rpc_peer import END, Frame, Peer, data, kinds, message, opens

if TYPE_CHECKING:
    from meshcache.rpc.stream import Stream

EARLY = "/t.S/Early"


async def early(stream: Stream) -> None:
    await stream.read()
    await stream.write(b"a")


@pytest.fixture
async def answered() -> Peer:
    """Streams 1 and 3 are answered, and the client has not ended them."""
    peer = Peer({EARLY: early})
    for number in (1, 3):
        peer.send(opens(number, EARLY) + data(number, message(b"")))
    assert kinds(await peer.settled()) == [frames.HEADERS, frames.DATA] * 2
    assert peer.running == 0
    return peer


async def test_a_stream_that_is_reset_in_time_is_sent_no_status(answered: Peer) -> None:
    answered.send(frames.reset(1, Code.CANCEL))
    assert [frame.number for frame in await answered.more()] == [3]


async def test_a_client_that_ends_its_stream_is_told_the_status_at_once(answered: Peer) -> None:
    answered.send(data(1, b"", END))
    [trailers] = answered.received()
    assert (trailers.number, answered.fields(trailers)) == (1, {"grpc-status": "0"})


async def test_a_client_that_does_neither_is_told_the_status(answered: Peer) -> None:
    received: list[Frame] = []
    while len(received) < 2:
        received += await answered.more()
    assert [(frame.number, answered.fields(frame)) for frame in received] == [
        (1, {"grpc-status": "0"}),
        (3, {"grpc-status": "0"}),
    ]
    answered.send(frames.reset(1, Code.CANCEL) + data(3, message(b"b")))
    assert await answered.settled() == []


async def test_streams_that_come_later_are_waited_for_as_well(answered: Peer) -> None:
    answered.send(opens(5, EARLY) + data(5, message(b"")))
    received: list[Frame] = []
    while {frame.number for frame in received if frame.flags & END} != {1, 3, 5}:
        received += await answered.more()


async def test_with_the_connection_every_status_is_sent(answered: Peer) -> None:
    closed = answered.wire.closed
    answered.connection.close()
    assert not closed
    assert [frame.number for frame in answered.received()] == [1, 3]
    assert answered.wire.closed


async def test_nothing_is_sent_to_who_has_gone(answered: Peer) -> None:
    answered.lose()
    assert await answered.settled() == []
    answered.connection.close()
    assert answered.received() == []
