"""Whatever a client sends: an answer or a farewell, no exception, nothing left behind, and no more than linear time."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpc_frames import ALL, conversations

from fuzz.growth import MOST_GROWTH, TRIES, thread_seconds
from meshcache.rpc import frames
from meshcache.rpc.calls import Status
from meshcache.rpc.connection import Connection
from meshcache.rpc.frames import END_HEADERS, Code, Setting, frame
from meshcache.rpc.stream import Stream
from rpc_peer import ECHO, END, HOLD, OPENING, Peer, block, broken_off, data, message, opens

if TYPE_CHECKING:
    from collections.abc import Callable


async def _large(stream: Stream) -> None:
    await stream.read()
    await stream.write(bytes(200_000))


async def _fails(stream: Stream) -> None:
    await stream.read()
    raise ValueError("failed")


async def _early(stream: Stream) -> None:
    await stream.write(b"early")


async def _aborts(stream: Stream) -> None:
    await stream.abort(Status.UNAVAILABLE, "no")


METHODS = {"/t.S/Large": _large, "/t.S/Fails": _fails, "/t.S/Early": _early, "/t.S/Aborts": _aborts}


def survives(pieces: list[bytes]) -> None:
    """Let a client say this in turn with the handlers, and then be gone."""

    async def play() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        peer = Peer(METHODS, opening=b"")
        for piece in pieces:
            peer.send(piece)
            await asyncio.sleep(0)
        received = await peer.settled()
        if peer.wire.closed:
            broken_off([found for found in received if found.kind != frames.HEADERS])
            assert peer.running == 0
        assert all(str(error) == "failed" for error in peer.errors)
        peer.lose()
        await peer.settled()
        assert peer.running == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        connection = weakref.ref(peer.connection)
        del peer
        for generation in range(3):
            if connection() is not None:
                gc.collect(generation)
        assert connection() is None, "nothing knows the connection any more"
        assert complaints == []

    asyncio.run(play())


@given(st.lists(st.one_of(ALL, st.binary(max_size=30)), max_size=20))
@settings(deadline=None)
def test_frames_of_any_kind(sent: list[bytes]) -> None:
    survives([OPENING, *sent])


@given(conversations(), st.integers(1, 400))
@settings(deadline=None)
def test_conversations_with_faults(sent: bytes, step: int) -> None:
    survives([sent[at : at + step] for at in range(0, len(sent), step)])


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_anything_else(sent: bytes) -> None:
    survives([sent] if sent else [])


# Time.


def _tiny(count: int) -> list[bytes]:
    return [frame(0xEE, 0, 0) * count]


def _pings(count: int) -> list[bytes]:
    return [frame(frames.PING, 0, 0, bytes(8)) * count]


def _settings(count: int) -> list[bytes]:
    return [frames.settings({Setting.INITIAL_WINDOW_SIZE: 5}) * count]


def _windows_of_many(count: int) -> list[bytes]:
    held = [opens(2 * at + 1, HOLD) for at in range(count // 16)]
    window = [frames.settings({Setting.INITIAL_WINDOW_SIZE: size}) + frames.window_update(0, 1) for size in (0, 1)]
    return [*held, *(window[at % 2] for at in range(count))]


def _one_settings(count: int) -> list[bytes]:
    pairs = b"".join(b"\0\x04" + (at % 1000).to_bytes(4) for at in range(count))
    return [frame(frames.SETTINGS, 0, 0, pairs[at : at + 60_000]) for at in range(0, len(pairs), 60_000)]


def _pieces_of_a_message(count: int) -> list[bytes]:
    return [opens(1, HOLD), data(1, message(bytes(count))[:5]), data(1, b"x") * count]


def _empty_data(count: int) -> list[bytes]:
    return [opens(1, HOLD), data(1, b"") * count]


def _small_messages(count: int) -> list[bytes]:
    return [opens(1, HOLD), data(1, message(b"") * 1000) * (count // 1000)]


def _bytes_of_a_frame(count: int) -> list[bytes]:
    whole = frame(0xEE, 0, 0, bytes(1 << 14)) * (count // (1 << 14) + 1)
    return [whole[at : at + 1] for at in range(count)]


def _continuations(count: int) -> list[bytes]:
    part = frame(frames.HEADERS, 0, 1) + frame(frames.CONTINUATION, 0, 1, b"\x20") * 1000
    ends = frame(frames.CONTINUATION, END_HEADERS, 1, b"\x82")
    return [part + ends] * (count // 1000)


def _calls_and_resets(count: int) -> list[bytes]:
    encoded = block()
    return [
        frame(frames.HEADERS, END_HEADERS, 2 * at + 1, encoded) + frames.reset(2 * at + 1, Code.CANCEL)
        for at in range(count)
    ]


def _calls_of_nothing(count: int) -> list[bytes]:
    encoded = block("/t.S/None")
    return [frame(frames.HEADERS, END_HEADERS, 2 * at + 1, encoded) for at in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "pieces",
    [
        _tiny,
        _pings,
        _settings,
        _windows_of_many,
        _one_settings,
        _pieces_of_a_message,
        _empty_data,
        _small_messages,
        _bytes_of_a_frame,
        _continuations,
        _calls_and_resets,
        _calls_of_nothing,
    ],
)
def test_no_flood_takes_more_than_linear_time(pieces: Callable[[int], list[bytes]]) -> None:
    async def seconds(count: int) -> float:
        peer = Peer()
        # Nothing waits for them in a test; of the sum of a window's updates nothing is to be made too large.
        sent = pieces(count)
        took = thread_seconds(lambda: peer.send(*sent))
        assert not peer.wire.closed, broken_off(peer.received())
        peer.lose()
        await peer.settled()
        return took

    async def grows() -> bool:
        least, most = [min([await seconds(count) for _ in range(2)]) for count in (4_000, 64_000)]
        return most > 0.1 and most > MOST_GROWTH * least

    assert not all(asyncio.run(grows()) for _ in range(TRIES))


# Memory.


def _bytes_in_use() -> int:
    """By the package; asyncio's own set of all tasks grows by the way in which they come and go."""
    traces = [tracemalloc.Filter(True, f"*/{folder}/*") for folder in ("meshcache/rpc", "hpack")]
    snapshot = tracemalloc.take_snapshot().filter_traces(traces)
    return sum(trace.size for trace in snapshot.traces)


@pytest.mark.slow
def test_streams_that_were_reset_leave_nothing_behind() -> None:
    """In each of their phases, many times over; on one connection, which remembers nothing of them either."""

    async def play() -> None:
        peer = Peer(METHODS)
        peer.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 20}), frames.window_update(0, 1 << 30))
        number = 1
        phases = [
            [],
            [data(0, message(b"a"))],
            [data(0, message(b"a")[:3])],
            [data(0, message(b"a") * 3), None],
            [None, data(0, message(b"a")), None],
            [None, data(0, message(b"a")), None, data(0, b"", END)],
            [data(0, b"", END), None],
        ]
        heads = [block(path) for path in (ECHO, HOLD, *METHODS, "/t.S/None")]

        async def some(count: int) -> None:
            nonlocal number
            for at in range(count):
                peer.send(frame(frames.HEADERS, END_HEADERS, number, heads[at % len(heads)]))
                for step in phases[at % len(phases)]:
                    if step is None:
                        await asyncio.sleep(0)
                    else:
                        peer.send(step[:5] + number.to_bytes(4) + step[9:])
                peer.send(frames.reset(number, Code.CANCEL))
                number += 2
            await peer.settled()
            # Those that were answered are kept for a moment.
            peer.connection._lingering.end()
            await peer.settled()
            peer.wire.written.clear()
            peer._seen = 0
            peer.left.clear()
            peer.read.clear()
            peer.errors.clear()

        await some(2000)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()
        before = _bytes_in_use()
        # A pointer kept for each of them would be 80,000 bytes.
        await some(10_000)
        gc.collect()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not [found for found in gc.get_objects() if isinstance(found, Stream)]
        assert _bytes_in_use() - before < 50_000
        assert peer.running == 0
        assert isinstance(peer.connection, Connection)
        peer.lose()

    tracemalloc.start()
    try:
        asyncio.run(play())
    finally:
        tracemalloc.stop()
