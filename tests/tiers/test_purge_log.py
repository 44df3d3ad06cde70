"""The pod's log of purge rules."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from meshcache.engine.purge_state import Header, Step
from meshcache.engine.purges import PurgeKind, Rule
from meshcache.tiers.purge_log import LogReader, LogWriter, News


def step(number: int, value: str = "t") -> Step:
    return Step(number, Rule(PurgeKind.TAG, value, False, 1.0, f"u{number}"), 1.0)


def unmarked(news: News) -> Header:
    assert news.header is not None
    return msgspec.structs.replace(news.header, mark=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "purges.log"


@pytest.fixture
def writer(path: Path) -> LogWriter:
    made = LogWriter(path)
    made.replace(Header(5, number=1), [step(2)])
    return made


def test_a_reader_gets_what_is_there_and_then_what_comes(path, writer):
    reader = LogReader(path)
    news = reader.read()
    assert (unmarked(news), news.steps) == (Header(5, number=1), (step(2),))
    assert reader.read().steps == ()
    writer.append([step(3), step(4, "\u00e9" * 500)])
    news = reader.read()
    assert (news.header, news.steps) == (None, (step(3), step(4, "\u00e9" * 500)))
    assert reader.offset == path.stat().st_size == writer.size
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_reader_begins_again_with_another_file(path, writer):
    reader = LogReader(path)
    reader.read()
    writer.replace(Header(5, number=7), [])
    writer.append([step(8)])
    news = reader.read()
    assert (unmarked(news), news.steps) == (Header(5, number=7), (step(8),))


def test_a_file_that_has_the_place_of_another_on_the_disk_is_another(path, writer):
    reader = LogReader(path)
    before = reader.read()
    content = path.read_bytes()
    LogWriter(path.with_name("other")).replace(Header(5, number=1), [step(2)])
    # The same inode, and in all but its mark the same content, as when numbers of inodes are used again.
    path.write_bytes(path.with_name("other").read_bytes())
    after = reader.read()
    assert len(content) == path.stat().st_size
    assert (unmarked(after), after.steps) == (unmarked(before), before.steps)


@pytest.mark.parametrize("cut", [1, 7, 8, 20])
def test_a_record_that_is_cut_off_ends_the_log_until_it_is_whole(path, writer, cut):
    reader = LogReader(path)
    writer.append([step(3)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    news = reader.read()
    assert news.steps == (step(2),)
    with path.open("ab") as file:
        file.write(whole[len(whole) - cut :])
    assert reader.read().steps == (step(3),)


def test_a_damaged_record_ends_the_log(path, writer):
    writer.append([step(3), step(4)])
    content = bytearray(path.read_bytes())
    content[content.index(b"u3")] ^= 1
    path.write_bytes(content)
    assert LogReader(path).read().steps == (step(2),)


@pytest.mark.parametrize("content", [b"", b"MCPURGE1", b"MCPURGE1" + bytes(40), b"something else", os.urandom(200)])
def test_what_is_no_log_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"purges\.log"):
        LogReader(path).read()


def test_a_writer_goes_on_behind_what_is_sound(path, writer):
    writer.append([step(3)])
    writer.close()
    with path.open("ab") as file:
        file.write(b"\0\0\0\x10torn")
    reader = LogReader(path)
    reader.read()
    again = LogWriter(path)
    again.resume(reader.offset)
    again.append([step(4)])
    assert LogReader(path).read().steps == (step(2), step(3), step(4))


def test_what_cannot_be_written_whole_is_not_in_the_log(path, writer, monkeypatch):
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, data[:10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="full"):
            writer.append([step(3)])
        with pytest.raises(OSError, match="full"):
            writer.replace(Header(6), [])
    writer.append([step(4)])
    assert LogReader(path).read().steps == (step(2), step(4))
    assert os.listdir(path.parent) == ["purges.log"]


def test_a_writer_notices_that_its_file_is_gone(path, writer):
    assert writer.stands()
    path.rename(path.with_name("elsewhere"))
    assert not writer.stands()
    writer.replace(Header(5, number=9), [])
    assert writer.stands()
    writer.remove()
    assert not path.exists()
    assert not writer.stands()
    with pytest.raises(FileNotFoundError):
        writer.append([step(1)])
