"""What `make proofs` makes of its parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proofs import __main__ as proofs
from proofs import swaps
from proofs.__main__ import PARTS, Part, chosen, main, run

REPOSITORY = Path(__file__).parents[2]


def part(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "model") -> Part:
    (folder / f"claim_{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return Part(name, "it holds", [f"claim_{name}"])


def test_a_part_tells_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(part("print('much'); print('{\"a\": 1}')", tmp_path, monkeypatch))
    assert (outcome.held, outcome.found) == (True, {"a": 1})


def test_a_part_that_does_not_hold_fails_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = (part("print('3 passed')", tmp_path, monkeypatch), part("exit(1)", tmp_path, monkeypatch, "fuzz"))
    monkeypatch.setattr(proofs, "PARTS", parts)
    monkeypatch.delenv("PARTS", raising=False)
    assert main() == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["model", "holds"], ["fuzz", "FAILS"]]
    found = json.loads(last)
    assert found["model"]["holds"] is True
    assert found["model"]["summary"] == "3 passed"
    assert found["fuzz"]["holds"] is False


def test_parts_are_chosen_by_name() -> None:
    assert chosen("") == list(PARTS)
    assert [part.name for part in chosen("ttfb, model")] == ["ttfb", "model"]
    with pytest.raises(SystemExit, match="no part is called 'modle'"):
        chosen("modle")


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_number_that_is_none_ends_it_before_anything_runs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILLS", text)
    with pytest.raises(SystemExit, match=f"proofs: KILLS is '{text}'; it has to be a whole number from 1 on"):
        main()


@pytest.mark.parametrize(("name", "text"), [("SWAPS", "-1"), ("SWAPS", "x"), ("RATE", "0")])
def test_so_do_those_of_swaps(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, text)
    monkeypatch.setattr(swaps, "raise_on_termination", lambda: None)
    assert swaps.main() == 1
    assert capsys.readouterr().err.startswith(f"swaps: {name} is '{text}'; it has to be a ")


def test_what_the_parts_run_is_there() -> None:
    for each in PARTS:
        for argument in each.module:
            if argument.startswith("tests/"):
                assert (REPOSITORY / argument).exists()
