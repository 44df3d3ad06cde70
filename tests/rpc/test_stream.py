from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rpc import frames
from meshcache.rpc.calls import Status
from meshcache.rpc.frames import Code, Setting
from meshcache.rpc.stream import MOST_MESSAGE_BYTES, WINDOW, CallError
from rpc_peer import ECHO, END, HOLD, OPENING, Frame, Peer, contents, data, kinds, message, opens, resets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from meshcache.rpc.stream import Stream

CUT = 16_000


def in_frames(number: int, payload: bytes, size: int = CUT) -> list[bytes]:
    return [data(number, payload[at : at + size]) for at in range(0, len(payload), size)]


def credited(received: list[Frame], number: int) -> int:
    return sum(
        int.from_bytes(frame.payload)
        for frame in received
        if frame.kind == frames.WINDOW_UPDATE and frame.number == number
    )


def once(work: Callable[[Stream], Awaitable[object]]) -> Peer:
    """A client whose stream 1 is worked on by `work`."""

    async def serve(stream: Stream) -> None:
        await work(stream)

    peer = Peer({"/t.S/Once": serve})
    peer.send(opens(1, "/t.S/Once"))
    return peer


# Messages that come.


@given(
    messages=st.lists(st.binary(max_size=30), max_size=8),
    places=st.lists(st.integers(0, 300), max_size=10),
    padding=st.integers(0, 3),
)
def test_messages_are_read_whole_however_they_are_cut_into_frames(
    messages: list[bytes], places: list[int], padding: int
) -> None:
    whole = b"".join(map(message, messages))
    borders = [0, *sorted(min(place, len(whole)) for place in places), len(whole)]

    async def play() -> list[bytes]:
        peer = Peer()
        peer.send(opens(1, HOLD))
        for start, end in pairwise(borders):
            if padding:
                payload = bytes((padding,)) + whole[start:end] + bytes(padding)
                peer.send(data(1, payload, frames.PADDED))
            else:
                peer.send(data(1, whole[start:end]))
        await peer.settled()
        peer.lose()
        await peer.settled()
        return peer.read

    assert asyncio.run(play()) == messages


async def test_a_message_of_the_largest_size_is_taken() -> None:
    peer = Peer()
    peer.send(opens(1, HOLD))
    peer.send(*in_frames(1, message(bytes(MOST_MESSAGE_BYTES)), 60_000))
    received = await peer.settled()
    assert [len(content) for content in peer.read] == [MOST_MESSAGE_BYTES]
    assert MOST_MESSAGE_BYTES - WINDOW < credited(received, 1) <= MOST_MESSAGE_BYTES + 5


@pytest.mark.parametrize(
    ("prefix", "code"),
    [
        (b"\x01" + (3).to_bytes(4), Code.PROTOCOL_ERROR),
        (b"\x00" + (MOST_MESSAGE_BYTES + 1).to_bytes(4), Code.ENHANCE_YOUR_CALM),
        (b"\x00\xff\xff\xff\xff", Code.ENHANCE_YOUR_CALM),
    ],
    ids=["compressed", "too long", "longest"],
)
@pytest.mark.parametrize("before", [b"", message(b"a")])
async def test_a_message_that_is_not_taken_is_refused_by_its_prefix(prefix: bytes, code: Code, before: bytes) -> None:
    peer = Peer()
    peer.send(opens(1, HOLD) + opens(3))
    await peer.settled()
    peer.send(data(1, before + prefix))
    assert resets(await peer.settled()) == {1: code}
    assert (peer.running, peer.cancelled) == (1, 1), "the other stream goes on"
    assert not peer.wire.closed


@pytest.mark.parametrize("rest", [b"\x00", message(b"abc")[:-1]])
async def test_a_message_that_is_cut_short_is_no_end_of_a_stream(rest: bytes) -> None:
    peer = Peer()
    peer.send(opens(1) + data(1, rest, END))
    assert resets(await peer.settled()) == {1: Code.PROTOCOL_ERROR}
    assert not peer.running


async def test_the_end_in_a_frame_of_its_own() -> None:
    peer = Peer()
    peer.send(opens(1) + data(1, message(b"a")))
    await peer.settled()
    peer.send(data(1, b"", END))
    [trailers] = await peer.settled()
    assert peer.fields(trailers)["grpc-status"] == "0"


# The window for the client.


async def test_what_nobody_reads_is_not_asked_for() -> None:
    """Many small messages: the client is stopped by its window, and goes on when they are read."""
    go = asyncio.Event()
    read = 0

    async def later(stream: Stream) -> None:
        nonlocal read
        await go.wait()
        while await stream.read() is not None:
            read += 1

    peer = once(later)
    few = message(b"") * 3000
    sent, window = 0, WINDOW
    while window >= len(few):
        peer.send(data(1, few))
        sent, window = sent + len(few), window - len(few) + credited(peer.received(), 1)
    assert sent <= 2 * WINDOW
    go.set()
    assert window + credited(await peer.settled(), 1) > WINDOW // 2
    assert read == sent // 5


async def test_a_client_that_ignores_its_window_is_reset() -> None:
    peer = once(lambda _: asyncio.Event().wait())
    peer.send(*[data(1, message(bytes(CUT)))] * (2 * WINDOW // CUT + 10))
    assert resets(await peer.settled()) == {1: Code.FLOW_CONTROL_ERROR}
    assert not peer.running


async def test_a_client_that_sends_no_more_is_given_no_more_room() -> None:
    go = asyncio.Event()

    async def later(stream: Stream) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await go.wait()
        while await stream.read() is not None:
            pass

    peer = once(later)
    peer.send(opens(3, "/t.S/Once"))
    for number in (1, 3):
        # More than a window of whole messages: half a window waits to be given back.
        peer.send(*[data(number, message(bytes(CUT)))] * (3 * WINDOW // 2 // CUT + 5))
    peer.send(data(1, b"", END), frames.reset(3, Code.CANCEL))
    peer.received()
    go.set()
    received = await peer.settled()
    assert peer.running == 0
    assert not any(frame.kind == frames.WINDOW_UPDATE for frame in received)


async def test_padding_is_given_back_as_well() -> None:
    peer = Peer()
    peer.send(opens(1, HOLD))
    padded = data(1, b"\xff" + bytes(255), frames.PADDED)
    count = WINDOW // 256
    peer.send(*[padded] * count)
    assert credited(peer.received(), 1) >= WINDOW - WINDOW // 2


# Replies.


async def test_a_reply_and_its_head_are_written_at_once() -> None:
    peer = Peer()
    peer.send(opens(1) + data(1, message(b"a"), END))
    head, reply, trailers = await peer.settled()
    assert peer.fields(head) == {":status": "200", "content-type": "application/grpc"}
    assert (reply.kind, reply.flags, reply.payload) == (frames.DATA, 0, message(b"a"))
    assert (peer.fields(trailers), trailers.flags & END) == ({"grpc-status": "0"}, END)


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 65_530, 65_531, 65_532, 300_000, 1 << 20])
async def test_replies_keep_to_the_clients_windows_and_frames(size: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    peer = once(lambda stream: stream.write(content))
    got, window, shared = b"", frames.DEFAULT_WINDOW, frames.DEFAULT_WINDOW
    while True:
        new = await peer.settled()
        brought = contents(new, 1)
        assert len(brought) <= min(window, shared)
        assert all(len(frame.payload) <= frames.DEFAULT_FRAME_BYTES for frame in new)
        got, window, shared = got + brought, window - len(brought), shared - len(brought)
        if not brought:
            break
        for number in (1, 0):
            assert not contents(await peer.settled(), 1), "one window of two is open"
            peer.send(frames.window_update(number, 50_000))
        window, shared = window + 50_000, shared + 50_000
    assert got == message(content)


async def test_larger_frames_are_used_when_the_client_takes_them() -> None:
    peer = once(lambda stream: stream.write(bytes(40_000)))
    peer.send(frames.settings({Setting.MAX_FRAME_SIZE: 50_000}))
    assert [len(frame.payload) for frame in await peer.settled() if frame.kind == frames.DATA] == [40_005]


async def test_a_window_that_becomes_negative_is_to_be_filled_first() -> None:
    replies = asyncio.Event()

    async def twice(stream: Stream) -> None:
        await stream.write(bytes(1000))
        await replies.wait()
        await stream.write(b"b")

    peer = once(twice)
    await peer.settled()
    peer.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 100}))
    replies.set()
    # 100 - 1005 bytes may be sent.
    assert not contents(await peer.settled(), 1)
    peer.send(frames.window_update(1, 905))
    assert not contents(await peer.settled(), 1)
    peer.send(frames.window_update(1, 4))
    assert contents(await peer.settled(), 1) == message(b"b")[:4]
    peer.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 102}))
    assert contents(await peer.settled(), 1) == message(b"b")[4:]


async def test_a_window_of_nothing_holds_back_messages_and_no_status() -> None:
    peer = Peer(opening=frames.PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    peer.send(opens(1) + data(1, message(b"a"), END) + opens(3, flags=END))
    received = await peer.settled()
    assert [(frame.kind, frame.number) for frame in received] == [(frames.HEADERS, 1), (frames.HEADERS, 3)]
    peer.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 6}))
    assert contents(await peer.settled(), 1) == message(b"a")


async def test_nothing_is_written_while_the_client_does_not_read() -> None:
    peer = once(lambda stream: stream.write(b"a"))
    peer.connection.pause_writing()
    assert not peer.wire.reading
    assert kinds(await peer.settled()) == [frames.HEADERS]
    peer.connection.resume_writing()
    assert peer.wire.reading
    assert contents(await peer.settled(), 1) == message(b"a")


async def test_a_long_reply_stops_when_the_client_does_not_read() -> None:
    opening = OPENING + frames.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.window_update(0, 1 << 30)
    peer = Peer({"/t.S/Large": lambda stream: stream.write(bytes(4 << 20))}, opening)
    peer.wire.pause_after = 1 << 20
    peer.wire.pause = peer.connection.pause_writing
    peer.send(opens(1, "/t.S/Large"))
    assert (1 << 20) <= len(contents(await peer.settled(), 1)) <= (1 << 20) + (512 << 10)


# Ends.


async def test_an_error_of_a_call_is_its_status() -> None:
    async def refuse(stream: Stream) -> None:
        await stream.write(b"a")
        await stream.abort(Status.DATA_LOSS, "no: 100%\n")

    peer = once(refuse)
    *_, trailers = await peer.settled()
    assert peer.fields(trailers) == {"grpc-status": "15", "grpc-message": "no: 100%25%0A"}
    assert not peer.errors


@pytest.mark.parametrize("path", [ECHO, "/t.S/Aborts", "/t.S/Fails"])
async def test_what_comes_after_the_answer_says_nothing(path: str) -> None:
    async def fails(_: Stream) -> None:
        raise ValueError

    peer = Peer({"/t.S/Aborts": lambda stream: stream.abort(Status.UNAVAILABLE, ""), "/t.S/Fails": fails})
    peer.send(opens(1, path, END))
    await peer.settled()
    late = data(1, message(b"a")) + data(1, b"", END) + opens(1, path, END) + frames.window_update(1, 1 << 30)
    peer.send(late, frames.window_update(1, 1 << 30), frames.reset(1, Code.CANCEL))
    assert await peer.settled() == []


async def test_an_error_before_any_reply_has_its_head_with_it() -> None:
    peer = once(lambda stream: stream.abort(Status.UNAVAILABLE, "no"))
    [only] = await peer.settled()
    assert only.flags & END
    fields = peer.fields(only)
    assert (fields[":status"], fields["grpc-status"], fields["grpc-message"]) == ("200", "14", "no")


async def test_any_other_error_is_told_to_the_owner_and_not_to_the_client() -> None:
    async def fail(_: Stream) -> None:
        raise ValueError("secret")

    peer = once(fail)
    [only] = await peer.settled()
    assert peer.fields(only)["grpc-status"] == "13"
    assert "secret" not in str(peer.fields(only))
    assert [str(error) for error in peer.errors] == ["secret"]


async def test_to_a_stream_that_was_reset_nothing_is_sent() -> None:
    async def stubborn(stream: Stream) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await stream.write(b"late")
        raise CallError(Status.INTERNAL, "late")

    peer = once(stubborn)
    await peer.settled()
    peer.send(frames.reset(1, Code.CANCEL))
    assert await peer.settled() == []
    assert len(peer.left) == 1, "what is left of it can be waited for"
    assert peer.left[0].done()


@pytest.mark.parametrize("lost", [True, False])
async def test_who_works_for_a_handler_does_not_wait_for_a_client_that_has_gone(lost: bool) -> None:
    helpers: list[asyncio.Task[object]] = []

    async def delegate(stream: Stream) -> None:
        helpers.extend((asyncio.create_task(stream.read()), asyncio.create_task(stream.write(bytes(1 << 20)))))
        await asyncio.Event().wait()

    peer = once(delegate)
    await peer.settled()
    assert not any(helper.done() for helper in helpers)
    if lost:
        peer.lose()
    else:
        peer.send(frames.reset(1, Code.CANCEL))
    await peer.settled()
    assert [helper.result() for helper in helpers] == [None, None]


async def test_a_reply_that_waits_for_room_is_given_up_with_its_stream() -> None:
    peer = Peer()
    peer.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}) + opens(1) + data(1, message(b"a")))
    await peer.settled()
    assert peer.connection.waiting
    peer.send(frames.reset(1, Code.CANCEL))
    await peer.settled()
    assert not peer.connection.waiting
    assert peer.cancelled == 1


async def test_a_handler_that_returns_early_ends_the_answer() -> None:
    peer = once(lambda stream: stream.write(b"a"))
    assert kinds(await peer.settled()) == [frames.HEADERS, frames.DATA], "the status waits for the client"
    peer.send(data(1, message(b"unread"), END))
    [trailers] = await peer.settled()
    assert peer.fields(trailers)["grpc-status"] == "0"
    peer.send(opens(3, ECHO, END))
    assert [frame.number for frame in await peer.settled()] == [3]
