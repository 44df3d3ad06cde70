"""How `up` tells people to call the same meshcache again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from meshcache.cli.paths import own_name


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "clone" / ".venv" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path / "clone")
    return folder / "meshcache"


def test_a_module_without_a_script(program: Path) -> None:
    assert own_name() == f"{program.with_name('python')} -m meshcache"


def test_a_script_that_is_not_found_by_its_name(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.touch(0o755)
    assert own_name() == ".venv/bin/meshcache"
    monkeypatch.chdir(Path(__file__).parent)
    assert own_name() == str(program)


def test_another_installation_is_found_by_the_name(program: Path, tmp_path: Path) -> None:
    program.touch(0o755)
    (tmp_path / "meshcache").touch(0o755)
    assert own_name() == ".venv/bin/meshcache"


def test_a_folder_with_a_blank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my clone" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_name() == f"'{tmp_path}/my clone/python' -m meshcache"
    (tmp_path / "my clone").mkdir()
    (tmp_path / "my clone" / "meshcache").touch(0o755)
    assert own_name() == f"'{tmp_path}/my clone/meshcache'"


def test_a_script_that_is_found_by_its_name(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_name() == "meshcache"
