"""`meshcache schema`, run as a user runs it."""

from __future__ import annotations

import errno
import io
import json
import sys

import pytest

from meshcache.cli import main
from meshcache.policy.json_schema import document_schema


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["schema", *arguments])
    output = capsys.readouterr()
    return int(ended.value.code or 0), output.out, output.err


def test_all_kinds_and_one(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys)
    assert (status, json.loads(out)) == (0, document_schema())
    status, out, _ = run(capsys, "--kind", "CachePolicy", "--compact")
    assert (status, json.loads(out)) == (0, document_schema("CachePolicy"))
    assert len(out.splitlines()) == 1


def test_a_kind_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--kind", "CachePolice")
    assert (status, out) == (2, "")
    assert err == "meshcache: --kind: there is no kind 'CachePolice' (did you mean CachePolicy?)\n"


def test_a_disk_that_is_full(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    status, _, err = run(capsys)
    assert (status, err) == (1, "meshcache: No space left on device\n")


def test_help_shows_how_an_editor_finds_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "# yaml-language-server: $schema=" in run(capsys, "--help")[1]
