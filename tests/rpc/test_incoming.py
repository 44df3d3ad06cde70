from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rpc_frames import conversations

from meshcache.rpc import frames
from meshcache.rpc.frames import Code, Setting
from meshcache.rpc.incoming import FRAME_BYTES
from rpc_peer import OPENING, Peer, broken_off, data, kinds, message, opens

UNKNOWN = 0xEE


def said_to(pieces: list[bytes]) -> tuple[bytes, bool, int, list[bytes]]:
    """What a connection answers to pieces that come at once, and what becomes of it when the handlers have worked."""

    async def play() -> tuple[bytes, bool, int, list[bytes]]:
        peer = Peer(opening=b"")
        peer.send(*pieces)
        await peer.settled()
        outcome = bytes(peer.wire.written), peer.wire.closed, peer.begun, peer.read
        peer.lose()
        await peer.settled()
        return outcome

    return asyncio.run(play())


def cut_at(whole: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    # No read of a socket brings nothing.
    return [whole[start:end] for start, end in pairwise(borders) if start < end]


@given(whole=conversations(), places=st.lists(st.integers(0, 1 << 16), max_size=12))
def test_any_split_of_the_same_bytes_gives_the_same_outcome(whole: bytes, places: list[int]) -> None:
    assert said_to(cut_at(whole, places)) == said_to([whole])


@given(text=st.one_of(st.binary(min_size=1, max_size=60), st.just(b"GET / HTTP/1.1\r\n\r\n")), drawn=st.data())
def test_any_split_of_something_else_gives_the_same_outcome(text: bytes, drawn: st.DataObject) -> None:
    whole = OPENING[: drawn.draw(st.integers(0, len(OPENING)))] + text
    assert said_to([whole[at : at + 1] for at in range(len(whole))]) == said_to([whole])


def test_a_conversation_byte_by_byte() -> None:
    whole = OPENING + opens(1) + data(1, message(b"a")) + data(1, message(b"b" * 300), frames.END_STREAM)
    written, closed, begun, _ = said_to([whole[at : at + 1] for at in range(len(whole))])
    assert (closed, begun) == (False, 1)
    assert message(b"a") in written
    assert message(b"b" * 300) in written


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n", b"P0", b"\x00", frames.PREFACE[:-1] + b"\r", bytes(100)])
async def test_what_is_not_http2_is_told_so_at_once(sent: bytes) -> None:
    peer = Peer(opening=b"")
    peer.send(sent)
    assert broken_off(peer.received()) is Code.PROTOCOL_ERROR
    assert peer.wire.closed


@pytest.mark.parametrize("length", range(len(frames.PREFACE) + 9))
async def test_a_preface_that_has_not_come_in_full_is_waited_for(length: int) -> None:
    peer = Peer(opening=b"")
    peer.send(OPENING[:length])
    assert kinds(peer.received()) == [frames.SETTINGS, frames.WINDOW_UPDATE]
    peer.send(OPENING[length:])
    assert kinds(peer.received()) == [frames.SETTINGS]


@pytest.mark.parametrize(
    "first", [frames.frame(frames.PING, 0, 0, bytes(8)), frames.frame(frames.SETTINGS, frames.ACK, 0), opens(1)]
)
async def test_a_client_begins_with_its_settings(first: bytes) -> None:
    peer = Peer(opening=b"")
    peer.send(frames.PREFACE + first)
    assert broken_off(peer.received()) is Code.PROTOCOL_ERROR
    assert not peer.begun


async def test_this_side_begins_with_its_settings() -> None:
    settings, window = Peer(opening=b"").received()
    values = dict(frames.read_settings(settings.payload))
    assert values[Setting.MAX_FRAME_SIZE] == FRAME_BYTES
    assert window.number == 0


async def test_the_longest_frame_that_is_announced_is_taken() -> None:
    peer = Peer()
    peer.send(frames.frame(UNKNOWN, 0xFF, 1, bytes(FRAME_BYTES)) + frames.frame(frames.PING, 0, 0, b"12345678"))
    assert kinds(peer.received()) == [frames.PING]


async def test_a_longer_frame_is_refused_by_its_head() -> None:
    peer = Peer()
    peer.send((FRAME_BYTES + 1).to_bytes(3) + bytes(6))
    assert broken_off(peer.received()) is Code.FRAME_SIZE_ERROR


async def test_after_a_fault_nothing_is_taken() -> None:
    peer = Peer()
    peer.send(frames.frame(frames.PING, 0, 1, bytes(8)) + opens(1))
    assert broken_off(peer.received()) is Code.PROTOCOL_ERROR
    await peer.settled()
    assert not peer.begun


async def test_the_reserved_bit_of_a_number_says_nothing() -> None:
    peer = Peer()
    ping = bytearray(frames.frame(frames.PING, 0, 0, bytes(8)))
    ping[5] |= 0x80
    peer.send(bytes(ping))
    assert kinds(peer.received()) == [frames.PING]
