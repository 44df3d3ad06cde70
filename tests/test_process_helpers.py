import asyncio
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.process import (
    Backoff,
    FolderLock,
    StartError,
    check_unix_path,
    end,
    make_folder,
    parse_address,
    send_signal,
    wait_or_kill,
)


def test_backoff_is_fast_first_then_doubles_up_to_a_bound():
    backoff = Backoff(first=0.05, most=1.0, forgive_after=10)
    assert [backoff.after(0.1) for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_long_life_is_forgiven():
    backoff = Backoff(first=0.05, most=1.0, forgive_after=10)
    for _ in range(5):
        backoff.after(0)
    assert backoff.after(10) == 0.05
    assert backoff.after(0) == 0.1


def test_a_folder_is_held_by_one(tmp_path):
    first, second = FolderLock(tmp_path / "lock"), FolderLock(tmp_path / "lock")
    first.acquire()
    with pytest.raises(StartError, match=rf"in use by another meshcache \(pid {os.getpid()}\)"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
    second.release()


def test_a_killed_holder_holds_nothing(tmp_path):
    code = (
        "import sys, pathlib; from meshcache.process import FolderLock\n"
        "FolderLock(pathlib.Path(sys.argv[1])).acquire() or print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StartError, match=str(holder.pid)):
            FolderLock(tmp_path / "lock").acquire()
        holder.kill()
        holder.wait()
    lock = FolderLock(tmp_path / "lock")
    lock.acquire()
    lock.release()


def test_a_lock_in_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StartError, match="No such file"):
        FolderLock(tmp_path / "none" / "lock").acquire()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_addresses(text, expected):
    assert parse_address(text, "--listen") == expected


@pytest.mark.parametrize("text", ["", ":", ":80", "host", "host:", "host:x", "host:-1", "host:65536", "::1:80", "h:٣"])
def test_what_is_no_address(text):
    with pytest.raises(StartError, match="--listen"):
        parse_address(text, "--listen")


@given(st.text())
def test_any_text_is_an_address_or_a_start_error(text):
    try:
        host, port = parse_address(text, "--listen")
    except StartError:
        return
    assert host
    assert 0 <= port <= 65535


def test_folders(tmp_path):
    assert make_folder(tmp_path / "a" / "b", "data").is_dir()
    assert make_folder(tmp_path / "a" / "b", "data").is_dir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "x"):
        with pytest.raises(StartError, match="cannot make the data folder"):
            make_folder(path, "data")


def test_unix_paths_have_a_limit(tmp_path):
    base = "/" + "x" * 106
    assert str(check_unix_path(type(tmp_path)(base))) == base
    with pytest.raises(StartError, match="too long"):
        check_unix_path(type(tmp_path)(base + "x"))


async def spawn(code: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code + "\nprint(1, flush=True)\nimport time; time.sleep(60)", stdout=subprocess.PIPE
    )
    await process.stdout.readline()
    return process


async def test_end_asks_before_it_kills():
    polite = await spawn("import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))")
    await end(polite, 10)
    assert polite.returncode == 7
    deaf = await spawn("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    await end(deaf, 0.1)
    assert deaf.returncode == -signal.SIGKILL
    await end(deaf, 0.1)
    send_signal(deaf, signal.SIGTERM)


async def test_a_process_that_ends_by_itself_keeps_its_status():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(5)")
    assert await wait_or_kill(process, 20)
    assert process.returncode == 5
    frozen = await spawn("")
    send_signal(frozen, signal.SIGSTOP)
    assert not await wait_or_kill(frozen, 0.05)
    assert frozen.returncode == -signal.SIGKILL
