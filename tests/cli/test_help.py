"""What `meshcache --help` says: one line for each command, and an example for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer

from meshcache.cli import main
from meshcache.cli.app import COMMANDS, build
from meshcache.cli.options import a_path


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


def functions(app: typer.Typer) -> Iterator[Callable[..., Any]]:
    yield from (command.callback for command in app.registered_commands if command.callback is not None)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from functions(group.typer_instance)


def test_no_option_takes_an_empty_text_for_the_current_folder() -> None:
    checked = 0
    for function in functions(build(COMMANDS)):
        for name, annotation in get_type_hints(function, include_extras=True).items():
            kind, *told = get_args(annotation) or (None,)
            if kind is Path or Path in get_args(kind):
                assert getattr(told[0], "parser", None) is a_path, f"{function.__name__}: {name}"
                checked += 1
    assert checked > 20


@pytest.mark.parametrize("arguments", [["validate"], ["status", "--data"], ["purge", "--all", "--data"], ["diff", "a"]])
def test_an_empty_path_is_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, ""])
    assert ended.value.code == 2
    assert ": expected a path, got an empty text (see `meshcache " in capsys.readouterr().err
