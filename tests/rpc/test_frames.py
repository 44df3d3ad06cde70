from __future__ import annotations

import pytest
from hyperframe.frame import Frame, GoAwayFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rpc import frames
from meshcache.rpc.frames import PADDED, Code, ConnectionFault, Setting

NUMBERS = st.integers(0, frames.STREAM_MASK)


def parsed(frame: bytes) -> Frame:
    """By another implementation."""
    read, size = Frame.parse_frame_header(memoryview(frame[:9]))
    assert len(frame) == 9 + size
    read.parse_body(memoryview(frame[9:]))
    return read


@given(number=st.integers(1, frames.STREAM_MASK), payload=st.binary(max_size=300), end=st.booleans())
def test_frames_read_as_another_implementation_writes_them(number: int, payload: bytes, end: bool) -> None:
    read = parsed(frames.frame(frames.DATA, frames.END_STREAM if end else 0, number, payload))
    assert (read.stream_id, read.data, set(read.flags)) == (number, payload, {"END_STREAM"} if end else set())


@given(number=st.integers(1, frames.STREAM_MASK), code=st.sampled_from(Code))
def test_a_reset(number: int, code: Code) -> None:
    read = parsed(frames.reset(number, code))
    assert isinstance(read, RstStreamFrame)
    assert (read.stream_id, read.error_code) == (number, code)


@given(number=NUMBERS, increment=st.integers(1, frames.LARGEST_WINDOW))
def test_a_window_update(number: int, increment: int) -> None:
    read = parsed(frames.window_update(number, increment))
    assert isinstance(read, WindowUpdateFrame)
    assert (read.stream_id, read.window_increment) == (number, increment)


@given(last=NUMBERS, code=st.sampled_from(Code), why=st.text(max_size=500))
def test_a_farewell_is_short_whatever_it_says(last: int, code: Code, why: str) -> None:
    frame = frames.goaway(last, code, why)
    read = parsed(frame)
    assert isinstance(read, GoAwayFrame)
    assert (read.last_stream_id, read.error_code) == (last, code)
    assert why.encode().startswith(read.additional_data)
    assert len(frame) <= 300


@given(values=st.dictionaries(st.sampled_from(Setting), st.integers(0, 2**31 - 1)))
def test_settings(values: dict[Setting, int]) -> None:
    read = parsed(frames.settings(values))
    assert isinstance(read, SettingsFrame)
    assert read.settings == values


@given(content=st.binary(max_size=40), padding=st.integers(0, 255))
def test_padding_is_taken_off(content: bytes, padding: int) -> None:
    padded = bytes((padding,)) + content + bytes(padding)
    assert frames.unpadded(padded, PADDED) == content
    assert frames.unpadded(padded, 0) == padded


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x03ab", b"\xff" + bytes(254)])
def test_padding_that_is_longer_than_its_frame(payload: bytes) -> None:
    with pytest.raises(ConnectionFault) as raised:
        frames.unpadded(payload, PADDED)
    assert raised.value.code is Code.PROTOCOL_ERROR


@given(values=st.lists(st.tuples(st.integers(7, 0xFFFF), st.integers(0, 0xFFFF_FFFF))))
def test_settings_that_nobody_knows_are_read_in_order(values: list[tuple[int, int]]) -> None:
    payload = b"".join(name.to_bytes(2) + value.to_bytes(4) for name, value in values)
    assert frames.read_settings(payload) == values


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\x00", Code.FRAME_SIZE_ERROR),
        (bytes(7), Code.FRAME_SIZE_ERROR),
        (b"\x00\x04\x80\x00\x00\x00", Code.FLOW_CONTROL_ERROR),
        (b"\x00\x05\x00\x00\x3f\xff", Code.PROTOCOL_ERROR),
        (b"\x00\x05\x01\x00\x00\x00", Code.PROTOCOL_ERROR),
        (b"\x00\x02\x00\x00\x00\x02", Code.PROTOCOL_ERROR),
    ],
)
def test_settings_that_may_not_be(payload: bytes, code: Code) -> None:
    with pytest.raises(ConnectionFault) as raised:
        frames.read_settings(payload)
    assert raised.value.code is code


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x04\x7f\xff\xff\xff",
        b"\x00\x05\x00\x00\x40\x00",
        b"\x00\x05\x00\xff\xff\xff",
        b"\x00\x02\x00\x00\x00\x01",
        b"\x00\x02\x00\x00\x00\x00",
    ],
)
def test_settings_that_may_just_be(payload: bytes) -> None:
    assert len(frames.read_settings(payload)) == 1
