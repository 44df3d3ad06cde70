from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from meshcache.tiers.signing import Keyring, KeyringError

A, B = b"a" * 32, b"b" * 32


def test_made_at_first_start_and_kept(tmp_path: Path) -> None:
    first = Keyring.load_or_create(tmp_path / "keys")
    again = Keyring.load_or_create(tmp_path / "keys")
    assert first.key_id == again.key_id
    assert first.assignment_secret == again.assignment_secret
    assert len(first.assignment_secret) >= 32
    mac = first.sign(b"context", b"payload")
    assert again.verify(first.key_id, b"context", b"payload", mac)


def test_files_are_private_and_nothing_else_is_left(tmp_path: Path) -> None:
    Keyring.load_or_create(tmp_path / "keys")
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    files = sorted((tmp_path / "keys").iterdir())
    assert [path.name for path in files] == ["assignment.secret", "signing-0001.key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert files[0].read_bytes() != files[1].read_bytes()


def test_newest_named_signs_and_old_ones_verify(tmp_path: Path) -> None:
    old = Keyring.load_or_create(tmp_path)
    mac = old.sign(b"c", b"p")
    (tmp_path / "signing-0002.key").write_bytes(b"  " + b"k" * 40 + b"\n")
    both = Keyring.load_or_create(tmp_path)
    assert both.key_id != old.key_id
    assert both.verify(old.key_id, b"c", b"p", mac)
    (tmp_path / "signing-0001.key").unlink()
    new = Keyring.load_or_create(tmp_path)
    assert new.key_id == both.key_id
    with pytest.raises(KeyError):
        new.verify(old.key_id, b"c", b"p", mac)


def test_key_id_follows_the_key_not_the_file() -> None:
    assert Keyring([A, B], A).key_id == Keyring([B], A).key_id != Keyring([A], A).key_id


def test_context_and_payload_are_told_apart() -> None:
    keyring = Keyring([A], A)
    mac = keyring.sign(b"ab", b"c")
    assert not keyring.verify(keyring.key_id, b"a", b"bc", mac)
    assert not keyring.verify(keyring.key_id, b"ab", b"c", mac[:-1] + bytes([mac[-1] ^ 1]))


def test_secrets_are_never_shown() -> None:
    text = repr(Keyring([A, B], b"s" * 32))
    assert "keys=2" in text
    for secret in ("aaaa", "bbbb", "ssss"):
        assert secret not in text


@pytest.mark.parametrize("content", [b"", b"short", b"   \n" * 20, b"x" * 5000])
def test_unusable_key_file_is_named_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "signing-0001.key").write_bytes(content)
    with pytest.raises(KeyringError) as caught:
        Keyring.load_or_create(tmp_path)
    assert "signing-0001.key" in str(caught.value)
    assert "short" not in str(caught.value)
    assert "xxxx" not in str(caught.value)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeyringError, match="file"):
        Keyring.load_or_create(tmp_path / "file" / "keys")


def _load(folder: Path, start: object, results: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    keyring = Keyring.load_or_create(folder)
    results.put((keyring.key_id, keyring.assignment_secret))  # type: ignore[attr-defined]


@pytest.mark.slow
def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    processes = [context.Process(target=_load, args=(tmp_path / "keys", start, results)) for _ in range(4)]
    for process in processes:
        process.start()
    start.set()
    seen = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(seen) == 1
    assert len(list((tmp_path / "keys").iterdir())) == 2
