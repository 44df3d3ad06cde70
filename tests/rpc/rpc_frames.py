"""Hypothesis strategies for what a client may send: frames of all kinds, in any order, right and wrong."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from meshcache.rpc import frames
from meshcache.rpc.frames import Setting
from rpc_peer import ECHO, HOLD, OPENING, block, message

PATHS = (ECHO, HOLD, "/t.S/None", "/t.S/Large", "/t.S/Fails", "/t.S/Early")
_NUMBERS = st.sampled_from([1, 1, 1, 3, 3, 5, 7, 9, 0, 2, 0x7FFF_FFFF])
_FLAGS = st.one_of(st.sampled_from([0, 1, 4, 5]), st.integers(0, 255))
_KINDS = st.integers(0, 12)
_BLOCKS = st.one_of(
    st.sampled_from([block(path) for path in PATHS] + [block(content_type="text/html"), b""]), st.binary(max_size=30)
)
_WORDS = st.sampled_from([0, 1, 5, 100, 16_384, 65_535, 1 << 20, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF])


@st.composite
def _data(draw: st.DrawFn) -> bytes:
    payload = draw(
        st.one_of(
            st.binary(max_size=20).map(message),
            st.binary(max_size=20),
            st.lists(st.binary(max_size=9).map(message)).map(b"".join),
            st.just(message(bytes(1000))),
        )
    )
    return frames.frame(frames.DATA, draw(st.sampled_from([0, 0, 1])), draw(_NUMBERS), payload)


@st.composite
def _padded(draw: st.DrawFn) -> bytes:
    kind, padding = draw(st.sampled_from([frames.DATA, frames.HEADERS])), draw(st.integers(0, 9))
    payload = bytes((padding,)) + draw(_BLOCKS) + bytes(draw(st.sampled_from([padding, padding, 0])))
    return frames.frame(kind, draw(st.sampled_from([0x8, 0xC, 0xD, 0x2C])), draw(_NUMBERS), payload)


@st.composite
def _headers(draw: st.DrawFn) -> bytes:
    encoded, number = draw(_BLOCKS), draw(_NUMBERS)
    borders = [0, *sorted(draw(st.lists(st.integers(0, len(encoded)), max_size=2))), len(encoded)]
    parts = [encoded[start:end] for start, end in pairwise(borders)]
    sent = b""
    for at, part in enumerate(parts):
        flags = frames.END_HEADERS if at == len(parts) - 1 else 0
        kind = frames.CONTINUATION if at else frames.HEADERS
        sent += frames.frame(kind, flags if at else flags | draw(st.sampled_from([0, 0, 1])), number, part)
    return sent


_SETTINGS = st.dictionaries(st.sampled_from(Setting), _WORDS, max_size=3).map(frames.settings)
_WINDOWS = st.builds(frames.window_update, _NUMBERS, _WORDS)
_RESETS = st.builds(lambda number, code: frames.frame(frames.RST_STREAM, 0, number, code.to_bytes(4)), _NUMBERS, _WORDS)
_PINGS = st.builds(
    lambda flags, payload: frames.frame(frames.PING, flags, 0, payload),
    st.sampled_from([0, 1]),
    st.one_of(st.binary(min_size=8, max_size=8), st.just(b"meshcach"), st.binary(max_size=9)),
)
_ANY = st.builds(frames.frame, _KINDS, _FLAGS, _NUMBERS, st.binary(max_size=20))
ALL = st.one_of(_headers(), _headers(), _data(), _data(), _padded(), _SETTINGS, _WINDOWS, _RESETS, _PINGS, _ANY)


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """A preface and frames, most of them right; at times some bytes are changed, or the end is missing."""
    sent = bytearray(OPENING + b"".join(draw(st.lists(ALL, max_size=15))))
    for at, mask in draw(st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(1, 255)), max_size=2)):
        if draw(st.booleans()) and at < len(sent):
            sent[at] ^= mask
    if draw(st.integers(0, 4)) == 0:
        del sent[draw(st.integers(0, len(sent))) :]
    return bytes(sent)
