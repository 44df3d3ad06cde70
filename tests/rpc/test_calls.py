from __future__ import annotations

import contextlib
import re
import time
from urllib.parse import unquote

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rpc import calls
from meshcache.rpc.calls import CallReader, Status
from meshcache.rpc.frames import DEFAULT_FRAME_BYTES, Code, ConnectionFault
from rpc_peer import ECHO, block

_PATHS = ("/a.B/C", "/a.B/D", "/" + "x" * 200)
_NAMES = st.sampled_from(["x-request-id", "traceparent", "user-agent", "te"])
_VALUES = st.one_of(st.sampled_from(["a", "b", "v" * 300]), st.text("abc-", max_size=8))
_TYPES = st.sampled_from(["application/grpc", "application/grpc+proto", "text/html"])


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Blocks of one connection, as an encoder makes them whose table is filled, changed in size and used again."""
    encoder = Encoder()
    blocks = []
    for _ in range(draw(st.integers(1, 25))):
        if draw(st.integers(0, 5)) == 0:
            encoder.header_table_size = draw(st.sampled_from([0, 60, 120, 300, 4096]))
        fields = [(":method", draw(st.sampled_from(["POST", "POST", "GET"]))), (":path", draw(st.sampled_from(_PATHS)))]
        fields += [("content-type", draw(_TYPES)), *draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=3))]
        # The last part says that a field goes into no table, as Envoy says of some.
        blocks.append(encoder.encode([(name, value, draw(st.booleans())) for name, value in fields]))
        if draw(st.booleans()):
            # The same call again: as a rule it is another block now, and from then on the same.
            blocks += [encoder.encode(fields) for _ in range(draw(st.integers(1, 3)))]
    return blocks


@given(histories())
def test_what_is_remembered_is_what_the_whole_history_says(blocks: list[bytes]) -> None:
    reader, decoder = CallReader(), Decoder()
    for at, encoded in enumerate(blocks):
        fields = dict(decoder.decode(encoded))
        call = reader.read(encoded)
        assert call.path == fields[":path"], at
        assert call.grpc == (fields[":method"] == "POST" and fields["content-type"].startswith("application/grpc")), at


def test_a_block_that_comes_again_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, encoder = CallReader(), Encoder()
    blocks = [block(encoder=encoder) for _ in range(4)]
    first = [reader.read(encoded) for encoded in blocks[:2]]
    monkeypatch.setattr(Decoder, "decode", None)
    assert [reader.read(encoded) for encoded in blocks[2:]] == first


def test_only_so_many_are_remembered_and_new_ones_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = CallReader()
    for number in range(1000):
        reader.read(block(f"/a.B/{number}"))
    known = reader.read(block("/a.B/999"))
    reads = 0

    def read(*_: object, **__: object) -> list[object]:
        nonlocal reads
        reads += 1
        return []

    monkeypatch.setattr(Decoder, "decode", read)
    assert reader.read(block("/a.B/999")) == known
    assert reads == 0, "the newest ones are remembered"
    for number in range(900):
        reader.read(block(f"/a.B/{number}"))
    assert reads > 800, "the oldest are not"


@pytest.mark.parametrize(
    ("changed", "grpc"),
    [
        ({}, True),
        ({"content-type": "application/grpc+proto"}, True),
        ({":method": "GET"}, False),
        ({"content-type": "application/json"}, False),
        ({"content-type": ""}, False),
    ],
)
def test_what_is_a_call_of_grpc(changed: dict[str, str], grpc: bool) -> None:
    call = CallReader().read(block(**changed))
    assert (call.path, call.grpc) == (ECHO, grpc)


def test_no_fields_are_no_call() -> None:
    assert CallReader().read(b"") == calls.Call("", False)


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(block()), st.just(b"\x20"), st.just(b"\x3f\xe1\x1f"))))
def test_garbage_is_a_fault_of_compression_and_nothing_else(parts: list[bytes]) -> None:
    reader = CallReader()
    try:
        for part in parts:
            reader.read(part)
    except ConnectionFault as fault:
        assert fault.code is Code.COMPRESSION_ERROR  # noqa: PT017 - it need not come


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x80",
        b"\xff\xff\x7f",
        b"\xbf\x10",
        b"\x00\x01a",
        b"\x00\x85a",
        b"\x82\x20",
        b"\x3f\xe2\x1f",
        b"\xff" * 100,
    ],
    ids=[
        "entry 0",
        "no such entry",
        "not in the table",
        "cut",
        "bad Huffman",
        "late size",
        "too large a table",
        "long",
    ],
)
def test_blocks_that_cannot_be_read(encoded: bytes) -> None:
    with pytest.raises(ConnectionFault) as raised:
        CallReader().read(encoded)
    assert raised.value.code is Code.COMPRESSION_ERROR


def test_a_small_block_does_not_become_a_large_list() -> None:
    """A bomb: one long field in the table, named again and again."""
    reader = CallReader()
    reader.read(b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4000)
    with pytest.raises(ConnectionFault, match="header list larger"):
        reader.read(b"\xbe" * 1000)


@pytest.mark.parametrize(
    "unit", [b"\x00\x00\x00", b"\x40\x00\x00", b"\x20", b"\x3f\xe1\x1f\x20", b"\x82", b"\x10\x01a\x00"]
)
@pytest.mark.alone
@pytest.mark.slow
def test_no_block_takes_long(unit: bytes) -> None:
    """As long as a block may be; see `MOST_BLOCK_BYTES`."""
    encoded = unit * (calls.MOST_FIELD_BYTES // len(unit))
    took = []
    for _ in range(3):
        began = time.thread_time()
        with contextlib.suppress(ConnectionFault):
            CallReader().read(encoded)
        took.append(time.thread_time() - began)
    assert min(took) < 0.3


@given(status=st.sampled_from(Status), text=st.text(max_size=calls.MOST_MESSAGE))
def test_trailers_say_what_they_are_given(status: Status, text: str) -> None:
    fields = dict(Decoder().decode(calls.trailers(status, text)))
    assert fields.pop("grpc-status") == str(int(status))
    said = fields.pop("grpc-message", "")
    assert unquote(said) == text.encode("utf-8", "replace").decode()
    assert re.fullmatch(r"([ -$&-~]|%[0-9A-F]{2})*", said)
    assert not fields


@pytest.mark.parametrize("length", [1, 126, 127, 128, 254, 255, 256, 1024])
def test_texts_of_any_length_are_written_right(length: int) -> None:
    assert dict(Decoder().decode(calls.trailers(Status.INTERNAL, "x" * length)))["grpc-message"] == "x" * length


@pytest.mark.parametrize("character", ["a", "\n", "ü", "\U0001f600", "\udc80"])
def test_the_text_of_an_error_fits_into_any_clients_frame(character: str) -> None:
    assert len(calls.trailers(Status.INTERNAL, character * 100_000)) < DEFAULT_FRAME_BYTES - len(calls.HEAD) - 1


def test_the_answers_heads() -> None:
    assert dict(Decoder().decode(calls.HEAD)) == {":status": "200", "content-type": "application/grpc"}
    assert dict(Decoder().decode(calls.NO_TABLE + calls.NOT_GRPC)) == {":status": "415"}
