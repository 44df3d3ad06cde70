"""Packed traces: unpacked whatever they are packed with, and never read short."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meshcache.simulate.packed import Frames
from meshcache.simulate.source import open_trace
from meshcache.simulate.trace import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

LINE = b'203.0.113.9 - ann [10/Oct/2000:13:55:36 -0700] "GET /a?b=1 HTTP/1.0" 200 2326\n'


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_and_what_is_none(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "trace"
    path.write_bytes(pack(LINE))
    with open_trace(path) as trace:
        assert [request.path for request in trace.requests()] == ["/a?b=1"]
        assert trace.position() == path.stat().st_size
    whole = pack(b"".join(LINE.replace(b"a?b", b"%d" % number) for number in range(9000)))
    for broken in (whole[:-1], whole[:400], whole[:12], whole[:6], whole[:6] + b"none", whole[:20] + b"\xff" * 99):
        path.write_bytes(broken)
        with pytest.raises(TraceError, match="cannot be"), open_trace(path) as trace:
            list(trace.requests())
    with pytest.raises(TraceError, match="No such file"), open_trace(tmp_path / "absent"):
        pass


def frames(packed: bytes) -> Frames:
    return Frames(io.BufferedReader(io.BytesIO(packed)), zlib.decompressobj)  # type: ignore[arg-type]  # a raw stream


def test_frames_follow_one_another() -> None:
    texts = [b"", b"a" * 5000, bytes(range(256)) * 99, b"b"]
    assert io.BufferedReader(frames(b"".join(map(zlib.compress, texts)))).read() == b"".join(texts)
    assert frames(b"").read() == b""


@pytest.mark.parametrize("left", [1, 3, 20])
def test_a_frame_that_is_cut_off_is_not_the_end(left: int) -> None:
    whole = zlib.compress(bytes(range(256)) * 99)
    with pytest.raises(EOFError, match="in the middle"):
        frames(whole + whole[:-left]).read()


def test_zstandard(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="the project does not need it")
    path = tmp_path / "trace"
    packed = zstandard.ZstdCompressor().compress(LINE)
    skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    path.write_bytes(skipped + packed + packed)
    with open_trace(path) as trace:
        assert len(list(trace.requests())) == 2
    path.write_bytes(packed + packed[:-1])
    with open_trace(path) as trace, pytest.raises(TraceError, match="in the middle"):
        list(trace.requests())


def test_zstandard_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(TraceError, match="pip install zstandard"), open_trace(path):
        pass


def test_zip_is_told_how_to_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "trace.zip"
    path.write_bytes(b"PK\x03\x04" + bytes(40))
    with pytest.raises(TraceError, match="unzip -p"), open_trace(path):
        pass
