"""What `meshcache --help` says: one line for each command, and an example for each."""

from __future__ import annotations

import re

import pytest

from meshcache.cli import main
from meshcache.cli.app import COMMANDS


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        return capsys.readouterr().out

    return run


def assert_no_types(text: str) -> None:
    """The types of Python, such as <list[Path]> and <int range>, are no help."""
    shown = text.partition("\nArguments:\n")[2].partition("\nOptions:\n")[0]
    assert "<" not in shown
    assert not re.search(r"<(str|int|float|list.*|.* range)>", text)


def test_every_command_is_told_whole_in_its_line(shown) -> None:
    text = shown()
    assert text == shown("--help")
    for name, command in COMMANDS.items():
        assert f"  {name:<13} {command.summary}\n" in text


@pytest.mark.parametrize("group", ["experiment", "demo", "wasm"])
def test_a_group_by_itself_shows_its_commands(shown, group: str) -> None:
    assert shown(group) == shown(group, "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_says_what_its_values_are(shown, name: str) -> None:
    text = shown(name, "--help")
    assert f"Example: meshcache {name} " in text
    assert_no_types(text)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("demo", "ab"),
        *(("wasm", name) for name in ("path", "build", "serve")),
        *(("experiment", name) for name in ("list", "show", "stop", "resume", "promote", "rollback", "srm")),
    ],
)
def test_so_has_every_command_of_a_group(shown, group: str, name: str) -> None:
    text = shown(group, name, "--help")
    assert f"Example: meshcache {group} {name}" in text
    assert_no_types(text)
