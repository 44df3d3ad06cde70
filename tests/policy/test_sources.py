"""Reading policy files, and watching a folder through every way in which it is edited."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import asynccontextmanager, suppress
from statistics import median
from typing import TYPE_CHECKING

import pytest

from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import MAX_FILE_BYTES, MAX_FILES
from meshcache.policy.errors import PolicyErrors
from meshcache.policy.sources import FolderSource, read_files, read_pod_labels

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from meshcache.policy.documents import Documents

pytestmark = pytest.mark.slow


def problems(documents: Documents) -> list[str]:
    return [str(problem) for problem in documents.problems]


def test_only_policy_files_are_read(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", ".hidden.yaml", "c.yaml~", "d.txt", ".b.yaml.swp"):
        (tmp_path / name).write_text(name)
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "x.yaml").write_text("x")
    (tmp_path / "sub.yaml").mkdir()
    assert read_files([tmp_path]).files == ((f"{tmp_path}/a.yml", "a.yml"), (f"{tmp_path}/b.yaml", "b.yaml"))
    assert read_files([tmp_path / "d.txt"]).files == ((f"{tmp_path}/d.txt", "d.txt"),)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_files([tmp_path]).files[0][1] == "a: 1\n"


def test_files_that_cannot_be_read_are_problems(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "gone")
    (tmp_path / "b.yaml").write_bytes(b"a: 1\nb: \xff\n")
    (tmp_path / "c.yaml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    os.mkfifo(tmp_path / "d.yaml")
    (tmp_path / "e.yaml").write_text("e: 1")
    documents = read_files([tmp_path])
    assert [name for name, _ in documents.files] == [f"{tmp_path}/e.yaml"]
    assert problems(documents) == [
        f"{tmp_path}/a.yaml: cannot be read: No such file or directory",
        f"{tmp_path}/b.yaml:2:4: not valid UTF-8 text",
        f"{tmp_path}/c.yaml: larger than {MAX_FILE_BYTES} bytes",
        f"{tmp_path}/d.yaml: not a file or a folder",
    ]
    with pytest.raises(PolicyErrors, match="No such file"):
        compile_documents(documents, generation=1, secret=b"")
    with pytest.raises(PolicyErrors, match="No such file"):
        FolderSource(tmp_path).read()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1")
    (tmp_path / "a.yaml").chmod(0)
    assert problems(read_files([tmp_path])) == [f"{tmp_path}/a.yaml: cannot be read: Permission denied"]


def test_what_cannot_be_read_is_told_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("a.yaml")
    (tmp_path / "b.yaml").mkdir()
    (tmp_path / "c.yaml").write_bytes("a: 1\n".encode("utf-16"))
    assert problems(read_files([tmp_path])) == [
        f"{tmp_path}/a.yaml: cannot be read: Too many levels of symbolic links",
        f"{tmp_path}/c.yaml:1:1: not valid UTF-8 text (it is UTF-16: save it as UTF-8)",
    ]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "p\udcff"
    folder.mkdir()
    (folder / "a\udcfe.yaml").write_text("a: 1")
    (folder / "b\udcfe.yaml").symlink_to("gone")
    documents = read_files([folder])
    assert documents.files == ((f"{tmp_path}/p\\xff/a\\xfe.yaml", "a: 1"),)
    assert problems(documents) == [f"{tmp_path}/p\\xff/b\\xfe.yaml: cannot be read: No such file or directory"]
    with pytest.raises(PolicyErrors, match=r"q\\xff: there is no such folder"):
        FolderSource(tmp_path / "q\udcff").read()


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        (tmp_path / f"{number}.yaml").touch()
    assert "more than 500 policy files" in problems(read_files([tmp_path]))[0]


def test_a_missing_folder_is_an_error_and_an_empty_one_is_a_set(tmp_path: Path) -> None:
    with pytest.raises(PolicyErrors, match="there is no such folder"):
        FolderSource(tmp_path / "gone").read()
    (tmp_path / "file").touch()
    with pytest.raises(PolicyErrors, match="not a folder"):
        FolderSource(tmp_path / "file").read()
    with pytest.raises(PolicyErrors, match="there is no such folder"):
        FolderSource(tmp_path / "file" / "below").read()
    (tmp_path / "loop").symlink_to("loop")
    for beyond in ("x" * 300, "loop"):
        with pytest.raises(PolicyErrors, match="cannot be read: "):
            FolderSource(tmp_path / beyond).read()
    (tmp_path / "loop").unlink()
    assert FolderSource(tmp_path).read().files == ()


def replaced(folder: Path, name: str, text: str) -> None:
    (folder / f".{name}.tmp").write_text(text)
    (folder / f".{name}.tmp").rename(folder / name)


def rewritten(folder: Path, name: str, text: str) -> None:
    """As `cp` and editors without backup do, in several writes, with the time of change put back."""
    path = folder / name
    before = path.stat()
    with path.open("w") as file:
        for character in text:
            file.write(character)
            file.flush()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


class Watched:
    """A folder source at work, and what it has yielded."""

    def __init__(self, folder: Path) -> None:
        self.source = FolderSource(folder)
        self.seen: list[Documents] = []

    def texts(self) -> list[list[str]]:
        return [[text for _, text in documents.files] for documents in self.seen]

    async def run(self) -> None:
        async for documents in self.source.changes():
            self.seen.append(documents)

    async def until(self, holds: Callable[[Documents], bool], seconds: float = 20.0) -> float:
        """Wait until the last set fits; how long that took."""
        began = time.monotonic()
        while not (self.seen and holds(self.seen[-1])):
            waited = time.monotonic() - began
            assert waited < seconds, f"not seen within {seconds} s: {self.texts()}"
            await asyncio.sleep(0.005)
        return time.monotonic() - began


@asynccontextmanager
async def watching(folder: Path, *, read: bool = True) -> AsyncIterator[Watched]:
    watched = Watched(folder)
    if read:
        watched.source.read()
    task = asyncio.create_task(watched.run())
    await asyncio.sleep(0.15)
    try:
        yield watched
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def reads(*texts: str) -> Callable[[Documents], bool]:
    return lambda documents: [text for _, text in documents.files] == list(texts)


async def test_nothing_comes_while_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1")
    async with watching(tmp_path) as watched:
        os.utime(tmp_path / "a.yaml")
        replaced(tmp_path, "a.yaml", "a: 1")
        (tmp_path / "other.txt").write_text("x")
        await asyncio.sleep(0.5)
        assert watched.seen == []


async def test_without_a_reading_before_the_first_set_comes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1")
    async with watching(tmp_path, read=False) as watched:
        await watched.until(reads("a: 1"))


@pytest.mark.alone
@pytest.mark.parametrize("edit", [replaced, rewritten])
async def test_an_edit_is_seen_within_a_second(edit: Callable[[Path, str, str], None], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1")
    async with watching(tmp_path) as watched:
        took = []
        for number in range(2, 7):
            edit(tmp_path, "a.yaml", f"a: {number}")
            took.append(await watched.until(reads(f"a: {number}")))
        (tmp_path / "b.yaml").write_text("b: 1")
        took.append(await watched.until(reads("a: 6", "b: 1")))
        (tmp_path / "a.yaml").unlink()
        took.append(await watched.until(reads("b: 1")))
    # Most of them: others may want the machine, too.
    assert median(took) < 1.0


def mount(root: Path, version: int, text: str) -> None:
    """One update of a mounted ConfigMap: a new folder, and the symlink `..data` swapped onto it."""
    data = root / f"..2024_{version}"
    data.mkdir()
    (data / "a.yaml").write_text(text)
    os.utime(data / "a.yaml", (0, 0))
    (root / "..data_tmp").symlink_to(data.name)
    (root / "..data_tmp").rename(root / "..data")
    if not (root / "a.yaml").is_symlink():
        (root / "a.yaml").symlink_to("..data/a.yaml")
    shutil.rmtree(root / f"..2024_{version - 1}", ignore_errors=True)


async def test_the_swap_of_a_mounted_config_map(tmp_path: Path) -> None:
    mount(tmp_path, 1, "a: 1")
    async with watching(tmp_path) as watched:
        for version in range(2, 5):
            mount(tmp_path, version, f"a: {version}")
            await watched.until(reads(f"a: {version}"))
        assert watched.texts() == [["a: 2"], ["a: 3"], ["a: 4"]]


async def test_the_folder_vanishes_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "a.yaml").write_text("a: 1")
    async with watching(folder) as watched:
        shutil.rmtree(folder)
        await watched.until(lambda documents: "there is no such folder" in "".join(problems(documents)))
        folder.mkdir()
        (folder / "a.yaml").write_text("a: 2")
        await watched.until(reads("a: 2"))
        replaced(folder, "a.yaml", "a: 3")
        await watched.until(reads("a: 3"))


async def test_a_folder_that_is_a_symlink_is_swapped(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(name)
    (tmp_path / "now").symlink_to("one")
    async with watching(tmp_path / "now") as watched:
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(tmp_path / "now")
        await watched.until(reads("two"))


@pytest.mark.parametrize("meanwhile", ["empty", "gone"])
async def test_a_file_that_is_saved_in_two_steps_is_not_taken_for_an_empty_one(tmp_path: Path, meanwhile: str) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("a: 1")
    async with watching(tmp_path) as watched:
        if meanwhile == "empty":
            (tmp_path / "a.yaml").write_text("")
        else:
            (tmp_path / "a.yaml").rename(tmp_path / "a.yaml~")
        await asyncio.sleep(0.15)
        (tmp_path / "a.yaml").write_text("a: 2")
        await watched.until(reads("a: 2", "a: 1"))
        assert watched.texts() == [["a: 2", "a: 1"]]
        # And one that is meant to be empty is so within a second.
        (tmp_path / "a.yaml").write_text("")
        assert await watched.until(reads("", "a: 1")) < 1.0
        (tmp_path / "b.yaml").unlink()
        assert await watched.until(reads("")) < 1.0


async def test_a_folder_that_cannot_be_watched_by_its_name_is_polled_and_can_be_left(tmp_path: Path) -> None:
    folder = tmp_path / "p\udcff"
    folder.mkdir()
    (folder / "a.yaml").write_text("a: 1")
    async with asyncio.timeout(20), watching(folder) as watched:
        replaced(folder, "a.yaml", "a: 2")
        await watched.until(reads("a: 2"))


async def test_a_file_that_cannot_be_read_is_told_once_and_heals(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1")
    async with watching(tmp_path) as watched:
        (tmp_path / "a.yaml").write_bytes(b"\xff")
        await watched.until(lambda documents: bool(documents.problems))
        await asyncio.sleep(0.5)
        assert len(watched.seen) == 1
        (tmp_path / "a.yaml").write_text("a: 1")
        await watched.until(reads("a: 1"))


async def test_a_folder_under_constant_change_is_still_seen(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 0")
    async with watching(tmp_path) as watched:
        number, began = 0, time.monotonic()
        while not watched.seen or number < 30:
            assert time.monotonic() - began < 20, "nothing is seen before it ends"
            number += 1
            replaced(tmp_path, "a.yaml", f"a: {number}")
            await asyncio.sleep(0.02)
        await watched.until(reads(f"a: {number}"))


async def test_it_works_where_the_system_notifies_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(*args: object, **kwargs: object) -> object:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr("meshcache.policy.sources.awatch", deaf)
    (tmp_path / "a.yaml").write_text("a: 1")
    async with watching(tmp_path) as watched:
        rewritten(tmp_path, "a.yaml", "a: 2")
        await watched.until(reads("a: 2"))


@pytest.mark.parametrize("turns", range(8))
async def test_a_watch_that_is_ended_ends_though_something_changes_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    change = asyncio.Event()

    async def notified(*args: object, **kwargs: object) -> AsyncIterator[set[object]]:
        while True:
            await change.wait()
            change.clear()
            yield set()

    monkeypatch.setattr("meshcache.policy.sources.awatch", notified)
    watched = Watched(tmp_path)
    watched.source.read()
    task = asyncio.create_task(watched.run())
    await asyncio.sleep(0.05)
    change.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=5)
    assert done


def test_pod_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_text('app="images"\nversion="v2"\napp.kubernetes.io/part-of="a\\"b\\\\c"\n\ngarbage\nx=y\n')
    assert read_pod_labels(path) == {"app": "images", "version": "v2", "app.kubernetes.io/part-of": 'a"b\\c'}
    assert read_pod_labels(tmp_path / "gone") == {}
