"""Logs that cannot be written: nobody fails by that, and nobody waits."""

from __future__ import annotations

import fcntl
import io
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from meshcache.observe.stderr import LogStream

CLOSED = """
import os, sys
from meshcache.observe.stderr import open_standard_streams
open_standard_streams()
sys.stdout.write("a"); sys.stderr.write("b"); sys.stdout.flush(); sys.stderr.flush()
opened = os.open(%r, os.O_WRONLY | os.O_CREAT)
os.write(opened, b"%%d" %% opened)
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Where to read, and the stream to write to."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reader, stream
        os.set_blocking(writer, False)
    if os.path.exists(f"/proc/self/fd/{reader}"):
        os.close(reader)


def test_lines_come_as_they_are(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    log = LogStream(stream)
    for line in ("one\n", "zwölf\n", "lone \ud800\n"):
        assert log.write(line) == len(line)
    assert os.read(reader, 100).decode() == "one\nzwölf\nlone \\ud800\n"


def test_a_long_line_comes_whole(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    LogStream(stream).write("x" * 30_000 + "\n")
    assert os.read(reader, 40_000) == b"x" * 30_000 + b"\n"


def test_a_reader_that_is_gone(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    os.close(reader)
    LogStream(stream).write("nobody reads this\n")


def test_a_full_disk() -> None:
    with open("/dev/full", "w") as stream:
        LogStream(stream).write("there is no room for this\n")


def test_a_stream_that_was_closed_before_the_start() -> None:
    LogStream(None).write("nowhere\n")
    assert not LogStream(None).isatty()


def test_a_stream_without_a_descriptor() -> None:
    stream = io.StringIO()
    LogStream(stream).write("kept\n")
    assert stream.getvalue() == "kept\n"
    stream.close()
    LogStream(stream).write("lost\n")


def test_a_reader_that_stands_still_is_not_waited_for_and_is_told_later(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 8192)
    log = LogStream(stream)
    began = time.monotonic()
    for number in range(5000):
        log.write(f"line {number:05}\n")
    assert time.monotonic() - began < 2.0
    taken = os.read(reader, 1 << 16).decode().splitlines()
    assert taken == [f"line {number:05}" for number in range(len(taken))]
    log.write("after\n")
    told, after = os.read(reader, 1 << 16).decode().splitlines()
    assert f'"lines": {5000 - len(taken)}, ' in told
    assert after == "after"


def test_a_reader_that_is_slow_does_not_slow_down_who_writes(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 8192)
    done = threading.Event()

    def read_slowly() -> None:
        while not done.wait(0.05):
            if select.select([reader], [], [], 0)[0]:
                os.read(reader, 4096)

    thread = threading.Thread(target=read_slowly)
    thread.start()
    try:
        log = LogStream(stream)
        began = time.monotonic()
        for _ in range(500):
            log.write("x" * 1000 + "\n")
        # To have taken it all the reader would need six seconds.
        assert time.monotonic() - began < 2.0
    finally:
        done.set()
        thread.join()


def test_a_line_that_was_cut_spoils_no_other(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 8192)
    log = LogStream(stream)
    log.write("x" * 10_000 + "\n")
    cut = os.read(reader, 1 << 16)
    log.write("after\n")
    first, told, after = (cut + os.read(reader, 1 << 16)).decode().splitlines()
    assert first == "x" * len(cut)
    assert json.loads(told)["lines"] == 1
    assert after == "after"


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_what_is_opened_later_never_becomes_a_standard_stream(closed: tuple[int, ...], tmp_path: object) -> None:
    file = f"{tmp_path}/data"

    def close() -> None:
        for descriptor in closed:
            os.close(descriptor)

    # Not to pipes of subprocess's own: the descriptors that are closed are to be those of this process.
    process = subprocess.Popen([sys.executable, "-c", CLOSED % file], preexec_fn=close)
    assert process.wait(30) == 0
    with open(file) as written:
        assert int(written.read()) > 2
