from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise

import pytest
from hpack import Encoder

from meshcache.rpc import frames
from meshcache.rpc.connection import MOST_BLOCK_BYTES, MOST_STREAMS, WINDOW_OF_ALL
from meshcache.rpc.frames import ACK, END_HEADERS, END_STREAM, PADDED, WITH_PRIORITY, Code, Setting, frame
from meshcache.rpc.stream import Stream
from rpc_peer import ECHO, HOLD, OPENING, Peer, block, broken_off, contents, data, kinds, message, opens, resets

PING = frame(frames.PING, 0, 0, b"12345678")


def reset(number: int) -> bytes:
    return frames.reset(number, Code.CANCEL)


# What ends the connection.


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(frames.DATA, 0, 0), Code.PROTOCOL_ERROR),
        (data(3, b""), Code.PROTOCOL_ERROR),
        (data(1, b"\x05abc", PADDED), Code.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 0, block()), Code.PROTOCOL_ERROR),
        (opens(2), Code.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS, 3, b"\x80"), Code.COMPRESSION_ERROR),
        (frame(frames.HEADERS, END_HEADERS | PADDED, 3, b"\xff" + block()), Code.PROTOCOL_ERROR),
        (frame(frames.HEADERS, END_HEADERS | WITH_PRIORITY, 3, b"abcd"), Code.FRAME_SIZE_ERROR),
        (frame(frames.PRIORITY, 0, 0, bytes(5)), Code.PROTOCOL_ERROR),
        (frame(frames.PRIORITY, 0, 3, bytes(4)), Code.FRAME_SIZE_ERROR),
        (frame(frames.RST_STREAM, 0, 1, bytes(3)), Code.FRAME_SIZE_ERROR),
        (reset(0), Code.PROTOCOL_ERROR),
        (reset(3), Code.PROTOCOL_ERROR),
        (frame(frames.SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
        (frame(frames.SETTINGS, ACK, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, 0, 0, bytes(5)), Code.FRAME_SIZE_ERROR),
        (frames.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}), Code.FLOW_CONTROL_ERROR),
        (frame(frames.PUSH_PROMISE, 0, 1, bytes(4)), Code.PROTOCOL_ERROR),
        (frame(frames.PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
        (frame(frames.PING, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
        (frame(frames.GOAWAY, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), Code.FRAME_SIZE_ERROR),
        (frames.window_update(0, 0), Code.PROTOCOL_ERROR),
        (frames.window_update(0, 0x8000_0000), Code.PROTOCOL_ERROR),
        (frames.window_update(0, frames.LARGEST_WINDOW), Code.FLOW_CONTROL_ERROR),
        (frames.window_update(3, 1), Code.PROTOCOL_ERROR),
        (frame(frames.CONTINUATION, END_HEADERS, 1), Code.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 3, block()) + PING, Code.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 3, block()) + frame(0xEE, 0, 3), Code.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 3) + frame(frames.CONTINUATION, END_HEADERS, 5, block()), Code.PROTOCOL_ERROR),
    ],
)
async def test_what_ends_the_connection(sent: bytes, code: Code) -> None:
    peer = Peer()
    peer.send(opens(1, HOLD))
    await peer.settled()
    peer.send(sent + opens(9))
    received = await peer.settled()
    assert broken_off(received) is code
    assert received[-1].payload[8:], "it says why"
    assert peer.wire.closed
    assert (peer.begun, peer.running, peer.cancelled) == (1, 0, 1), "what is answered is given up, and nothing begun"
    peer.lose()


async def test_a_client_that_does_not_read_how_it_ends_does_not_keep_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("meshcache.rpc.connection.FAREWELL", 0.01)
    peer = Peer()
    peer.connection.pause_writing()
    peer.send(frames.window_update(0, 0))
    peer.connection.resume_writing()
    assert not peer.wire.reading
    async with asyncio.timeout(60):
        await peer.wire.aborted.wait()


# What ends one stream.


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (data(1, b"", END_STREAM) + data(1, message(b"a")), Code.STREAM_CLOSED),
        (data(1, b"", END_STREAM) + data(1, b""), Code.STREAM_CLOSED),
        (data(1, b"", END_STREAM) + opens(1, flags=END_STREAM), Code.STREAM_CLOSED),
        (opens(1), Code.PROTOCOL_ERROR),
        (frames.window_update(1, 0), Code.PROTOCOL_ERROR),
        (frames.window_update(1, frames.LARGEST_WINDOW), Code.FLOW_CONTROL_ERROR),
    ],
)
async def test_what_ends_one_stream(sent: bytes, code: Code) -> None:
    peer = Peer()
    peer.send(opens(1, HOLD) + opens(3))
    await peer.settled()
    peer.send(sent)
    assert resets(await peer.settled()) == {1: code}
    assert (peer.running, peer.cancelled) == (1, 1)
    peer.send(data(3, message(b"a")))
    assert contents(await peer.settled(), 3) == message(b"a")


async def test_a_setting_that_overflows_a_window_ends_the_connection() -> None:
    peer = Peer()
    peer.send(opens(1) + frames.window_update(1, frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW))
    assert not peer.wire.closed
    peer.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW + 1}))
    assert broken_off(peer.received()) is Code.FLOW_CONTROL_ERROR


async def test_a_window_of_a_stream_that_is_over_overflows_nothing() -> None:
    peer = Peer()
    peer.send(opens(1) + frames.window_update(1, frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW) + reset(1))
    peer.send(opens(3) + frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW}))
    peer.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}) + frames.window_update(3, 10))
    assert not peer.wire.closed
    peer.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW - 9}))
    assert broken_off(peer.received()) is Code.FLOW_CONTROL_ERROR


# What says nothing, or little.


@pytest.mark.parametrize(
    "sent",
    [
        frame(0xEE, 0xFF, 0x7FFF_FFFF, bytes(99)),
        frame(frames.PRIORITY, 0, 99, bytes(5)),
        frame(frames.SETTINGS, ACK, 0),
        frame(frames.PING, ACK, 0, bytes(8)),
        frame(frames.GOAWAY, 0, 0, bytes(8)),
        frames.window_update(0, 1),
    ],
)
async def test_what_is_not_answered(sent: bytes) -> None:
    peer = Peer()
    peer.send(sent + PING)
    assert kinds(peer.received()) == [frames.PING]


async def test_a_ping_comes_back() -> None:
    peer = Peer()
    peer.send(PING)
    [pong] = peer.received()
    assert (pong.kind, pong.flags, pong.payload) == (frames.PING, ACK, b"12345678")


async def test_settings_are_acknowledged_and_the_last_of_two_holds() -> None:
    peer = Peer()
    twice = (
        frames.settings({Setting.INITIAL_WINDOW_SIZE: 7})[9:] + frames.settings({Setting.INITIAL_WINDOW_SIZE: 6})[9:]
    )
    peer.send(frame(frames.SETTINGS, 0, 0, twice))
    assert [(found.kind, found.flags) for found in peer.received()] == [(frames.SETTINGS, ACK)]
    peer.send(opens(1) + data(1, message(b"ab")))
    assert len(contents(await peer.settled(), 1)) == 6


async def test_after_a_farewell_of_the_client_its_streams_go_on() -> None:
    peer = Peer()
    peer.send(opens(1) + frame(frames.GOAWAY, 0, 0, bytes(8)) + data(1, message(b"a"), END_STREAM))
    assert contents(await peer.settled(), 1) == message(b"a")


# Header blocks.


@pytest.mark.parametrize("places", [[], [0], [1, 2, 3], [40]])
@pytest.mark.parametrize("extra", [0, PADDED, WITH_PRIORITY, PADDED | WITH_PRIORITY])
async def test_a_call_in_any_form_of_header_block(places: list[int], extra: int) -> None:
    encoded = block(x="y" * 100)
    borders = [*places, len(encoded)]
    first = encoded[: borders[0]]
    if extra & WITH_PRIORITY:
        first = b"\x00\x00\x00\x00\xff" + first
    if extra & PADDED:
        first = b"\x03" + first + bytes(3)
    peer = Peer()
    ends = 0 if places else END_HEADERS
    peer.send(frame(frames.HEADERS, extra | ends | END_STREAM, 1, first))
    for start, end in pairwise(borders):
        peer.send(frame(frames.CONTINUATION, END_HEADERS if end == len(encoded) else 0, 1, encoded[start:end]))
    [trailers] = await peer.settled()
    assert peer.fields(trailers)["grpc-status"] == "0"


async def test_an_empty_continuation_may_end_a_block_and_not_go_on_with_it() -> None:
    peer = Peer()
    begins, empty = frame(frames.HEADERS, END_STREAM, 1, block()), frame(frames.CONTINUATION, 0, 1)
    peer.send(begins + frame(frames.CONTINUATION, END_HEADERS, 1))
    assert kinds(await peer.settled()) == [frames.HEADERS]
    peer.send(begins + empty)
    assert broken_off(await peer.settled()) is Code.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("size", [1, 1000, 60_000])
async def test_a_block_without_an_end_is_broken_off(size: int) -> None:
    peer = Peer()
    part, sent = b"\x00" * size, size
    peer.send(frame(frames.HEADERS, 0, 1, part))
    while not peer.wire.closed and sent < 1 << 20:
        peer.send(frame(frames.CONTINUATION, 0, 1, part))
        sent += size
    assert broken_off(peer.received()) is Code.ENHANCE_YOUR_CALM
    assert sent <= MOST_BLOCK_BYTES + 2 * size


async def test_a_block_whose_last_frame_is_too_much() -> None:
    peer = Peer()
    peer.send(frame(frames.HEADERS, 0, 1, bytes(MOST_BLOCK_BYTES // 2)))
    peer.send(frame(frames.CONTINUATION, 0, 1, bytes(MOST_BLOCK_BYTES // 2)))
    peer.send(frame(frames.CONTINUATION, END_HEADERS, 1, b"a"))
    assert broken_off(peer.received()) is Code.ENHANCE_YOUR_CALM


async def test_as_much_as_a_request_to_envoy_may_say_costs_nobody_his_stream() -> None:
    """A tracer hands on what a client has said, with the call that asks about his request."""
    peer, encoder = Peer(), Encoder()
    peer.send(frame(frames.HEADERS, END_HEADERS, 1, block(HOLD, encoder)))
    long = block(HOLD, encoder, tracestate="a=" + "b" * (96 << 10))
    for at in range(0, len(long), 16_000):
        kind = frames.CONTINUATION if at else frames.HEADERS
        peer.send(frame(kind, END_HEADERS if at + 16_000 >= len(long) else 0, 3, long[at : at + 16_000]))
    await peer.settled()
    assert len(peer.connection.tasks()) == 2
    assert peer.cancelled == 0


async def test_the_block_of_a_stream_that_is_refused_or_over_is_read_all_the_same() -> None:
    """Or the next one would mean something else."""
    peer, encoder = Peer({"/t.S/New": Peer().methods[ECHO]}), Encoder()
    peer.send(opens(1, HOLD) + reset(1))
    late = encoder.encode([("x-new", "a" * 50)])
    peer.send(frame(frames.HEADERS, END_HEADERS | END_STREAM, 1, late))
    peer.send(frame(frames.HEADERS, END_HEADERS, 3, block("/t.S/None", encoder)))
    peer.received()
    for number in (5, 7, 9):
        peer.send(frame(frames.HEADERS, END_HEADERS | END_STREAM, number, block("/t.S/New", encoder)))
    received = await peer.settled()
    assert [peer.fields(found)["grpc-status"] for found in received] == ["0", "0", "0"]
    assert peer.begun == 3


@pytest.mark.parametrize(("before", "after", "said"), [(4096, 0, True), (4096, 4095, True), (4096, 8192, False)])
async def test_a_client_that_keeps_a_smaller_table_is_told_that_this_side_knows(
    before: int, after: int, said: bool
) -> None:
    peer = Peer(opening=frames.PREFACE + frames.settings({Setting.HEADER_TABLE_SIZE: before}))
    peer.send(opens(1) + data(1, message(b"a"), END_STREAM))
    assert not any(found.payload.startswith(b"\x20") for found in await peer.settled())
    peer.send(frames.settings({Setting.HEADER_TABLE_SIZE: after}))
    peer.send(opens(3, "/t.S/None") + opens(5) + data(5, message(b"a"), END_STREAM))
    heads = [found for found in await peer.settled() if found.kind == frames.HEADERS]
    assert [found.payload.startswith(b"\x20") for found in heads] == [said, False, False], "once"


# Calls.


async def test_what_is_not_served_is_unimplemented() -> None:
    peer = Peer()
    peer.send(opens(1, "/t.S/" + "é" * 2000) + data(1, message(b"a")) + frames.window_update(1, 5) + reset(1))
    [only] = await peer.settled()
    assert (peer.fields(only)["grpc-status"], only.flags & END_STREAM) == ("12", END_STREAM)
    assert len(only.payload) < 1000


@pytest.mark.parametrize("changed", [{":method": "GET"}, {"content-type": "text/html"}])
async def test_what_is_no_call_of_grpc_is_415(changed: dict[str, str]) -> None:
    peer = Peer()
    peer.send(frame(frames.HEADERS, END_HEADERS, 1, block(**changed)) + data(1, b"a=b", END_STREAM))
    head, ended = await peer.settled()
    assert (peer.fields(head), head.flags & END_STREAM) == ({":status": "415"}, END_STREAM)
    assert (ended.kind, ended.code) == (frames.RST_STREAM, Code.NO_ERROR)
    assert not peer.begun


async def test_what_comes_right_before_a_reset_is_read_and_then_the_handler_is_cancelled() -> None:
    """It may be the end of an answer, by which that can be stored."""
    peer = Peer()
    peer.send(opens(1, HOLD))
    await peer.settled()
    peer.send(data(1, message(b"a")) + reset(1))
    await peer.settled()
    assert (peer.read, peer.cancelled) == ([b"a"], 1)
    assert not peer.connection.tasks()


async def test_data_for_a_handler_that_is_done_has_the_status_come_at_once() -> None:
    """Else Envoy would wait for what is to become of it for as long as the stream lingers."""

    async def one(stream: Stream) -> None:
        await stream.read()

    peer = Peer({"/t.S/One": one})
    peer.send(opens(1, "/t.S/One") + data(1, message(b"a")))
    await peer.settled()
    peer.received()
    peer.send(data(1, message(b"more")))
    ends = [each.flags & END_STREAM for each in peer.received() if each.number == 1]
    assert ends == [END_STREAM]


async def test_a_reset_right_behind_a_call_leaves_nothing_begun() -> None:
    peer = Peer()
    peer.send(opens(1) + data(1, message(b"a")) + reset(1))
    assert await peer.settled() == []
    assert not peer.begun
    assert not peer.connection.tasks()


async def test_what_comes_on_streams_that_are_over_counts_for_all_and_says_nothing() -> None:
    peer = Peer()
    peer.send(opens(1, HOLD) + reset(1) + opens(3))
    sent = 0
    while not (received := peer.received()):
        peer.send(data(1, bytes(60_000)))
        sent += 60_000
        assert sent < WINDOW_OF_ALL
    [update] = received
    assert (update.kind, update.number, int.from_bytes(update.payload)) == (frames.WINDOW_UPDATE, 0, sent)
    peer.send(data(1, b"", END_STREAM) + frames.window_update(1, 1) + reset(1) + opens(1, flags=END_STREAM))
    assert await peer.settled() == []
    assert peer.running == 1


async def test_more_streams_than_may_be_open_are_refused_and_no_others() -> None:
    peer = Peer()
    peer.send(*(opens(2 * number + 1, HOLD) for number in range(MOST_STREAMS + 1)))
    assert resets(await peer.settled()) == {2 * MOST_STREAMS + 1: Code.REFUSED_STREAM}
    assert peer.running == MOST_STREAMS
    peer.send(reset(1) + opens(2 * MOST_STREAMS + 3, HOLD))
    assert resets(await peer.settled()) == {}
    peer.lose()
    await peer.settled()
    assert peer.running == 0
    assert all(task.done() for task in peer.left)


# The farewell.


async def test_a_farewell_in_two_steps() -> None:
    peer = Peer(opening=OPENING + opens(1))
    going = asyncio.create_task(peer.connection.go_away(60))
    warning, ping = await peer.settled()
    assert (warning.payload[:4], warning.code) == (b"\x7f\xff\xff\xff", Code.NO_ERROR)
    # Sent before the client has seen it.
    peer.send(opens(3) + frame(frames.PING, ACK, 0, b"other   "))
    assert await peer.settled() == []
    peer.send(frame(frames.PING, ACK, 0, ping.payload))
    [last] = await peer.settled()
    assert (int.from_bytes(last.payload[:4]), last.code) == (3, Code.NO_ERROR)
    assert going.done()
    peer.send(opens(5) + data(3, message(b"a"), END_STREAM))
    received = await peer.settled()
    assert resets(received) == {5: Code.REFUSED_STREAM}
    assert contents(received, 3) == message(b"a"), "what had begun goes on"
    assert peer.begun == 2


async def test_a_client_that_never_sees_the_farewell_is_not_waited_for() -> None:
    peer = Peer()
    await peer.connection.go_away(0.001)
    assert kinds(peer.received()) == [frames.GOAWAY, frames.PING, frames.GOAWAY]
    peer.send(opens(1))
    assert resets(await peer.settled()) == {1: Code.REFUSED_STREAM}


async def test_the_last_stream_of_a_farewell_does_not_grow() -> None:
    peer = Peer(opening=OPENING + opens(1))
    await peer.connection.go_away(0)
    peer.send(opens(3))
    peer.received()
    peer.send(frames.window_update(0, 0))
    [last] = peer.received()
    assert last.payload[:4] == (1).to_bytes(4)


async def test_who_works_on_after_the_end_writes_nothing() -> None:
    async def stubborn(stream: Stream) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await stream.write(b"late")

    peer = Peer({"/t.S/Stubborn": stubborn}, OPENING + opens(1, "/t.S/Stubborn"))
    await peer.settled()
    peer.connection.close()
    # The transport of `Peer` asserts that nothing is written after its end.
    assert await peer.settled() == []
    assert (peer.running, peer.errors) == (0, [])


async def test_a_farewell_is_said_once_and_to_nobody_who_has_gone() -> None:
    peer = Peer()
    await asyncio.gather(peer.connection.go_away(0), peer.connection.go_away(0))
    assert kinds(peer.received()) == [frames.GOAWAY, frames.PING, frames.GOAWAY]
    gone = Peer()
    going = asyncio.create_task(gone.connection.go_away(60))
    await gone.settled()
    gone.lose()
    await going
    await gone.connection.go_away(60)
