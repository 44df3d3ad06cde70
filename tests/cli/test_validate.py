"""`meshcache validate`, run as a user runs it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshcache.cli import main

SHIPPED = Path(__file__).parents[2] / "policies"

BAD = """apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: p}
spec:
  freshness:
    maxTtl: 60
    maxttl: 1h
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    output = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, output.out, output.err


def test_the_shipped_policies_are_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "validate", str(SHIPPED)) == (
        0,
        "ok: 6 documents in 4 files: 2 policies, 2 routes, 1 experiment\n",
        "",
    )


def test_errors_have_places_and_the_status_is_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(BAD)
    status, out, err = run(capsys, "validate", str(tmp_path))
    assert (status, out) == (1, "")
    assert err.splitlines() == [
        f"{tmp_path}/a.yaml:6:13: spec.freshness.maxTtl: a duration needs a unit: h, m, s or ms, for example 60s",
        f"{tmp_path}/a.yaml:7:5: spec.freshness.maxttl: unknown field (did you mean maxTtl?)",
    ]


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, _ = run(capsys, "validate", "--json", str(SHIPPED))
    assert status == 0
    counts = {"files": 4, "documents": 6, "policies": 2, "routes": 2, "experiments": 1}
    assert json.loads(out) == {"ok": True, **counts, "errors": [], "warnings": []}

    (tmp_path / "a.yaml").write_text(BAD)
    status, out, err = run(capsys, "validate", "--json", str(tmp_path))
    assert (status, err) == (1, "")
    found = json.loads(out)
    assert found["ok"] is False
    assert found["errors"][1] == {
        "file": f"{tmp_path}/a.yaml",
        "line": 7,
        "column": 5,
        "field": "spec.freshness.maxttl",
        "message": "unknown field",
        "hint": "did you mean maxTtl?",
    }


def test_what_is_never_reached_is_warned_about(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "apiVersion: meshcache.dev/v1alpha1\nkind: CacheRoute\nmetadata: {name: r}\nspec:\n  match:\n"
        "    - path: {prefix: /a}\n    - path: {regex: '/a/[0-9]+'}\n"
    )
    status, out, err = run(capsys, "validate", str(file))
    assert (status, out[:3]) == (0, "ok:")
    assert err.startswith(f"warning: {file}:7:7: spec.match[1]: is never reached: an earlier match of this route at")
    assert len(err.splitlines()) == 1
    assert run(capsys, "validate", "--strict", str(file))[:2] == (1, "")
    assert run(capsys, "validate", "--strict", str(SHIPPED))[0] == 0
    status, out, _ = run(capsys, "validate", "--json", str(file))
    assert (status, json.loads(out)["warnings"][0]["line"]) == (0, 7)
    status, out, _ = run(capsys, "validate", "--json", "--strict", str(file))
    assert (status, json.loads(out)["ok"]) == (1, False)


def test_several_paths_are_one_set(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["ttl-only.yaml", "lru-swr.yaml", "images.yaml"]
    status, out, _ = run(capsys, "validate", *(str(SHIPPED / name) for name in names))
    assert (status, out[:22]) == (0, "ok: 5 documents in 3 f")
    status, _, err = run(capsys, "validate", str(SHIPPED / "images.yaml"))
    assert status == 1
    assert "there is no CachePolicy named ttl-only" in err


@pytest.mark.parametrize("name", ["gone", "empty"])
def test_nothing_to_check_is_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    status, out, err = run(capsys, "validate", str(tmp_path / name))
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1


def test_garbage_is_a_failure_and_no_crash(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "b.yaml").write_text("[" * 100_000)
    (tmp_path / "c.yaml").write_text("a: &a [*a]")
    status, _, err = run(capsys, "validate", str(tmp_path))
    assert status == 1
    assert [line.rpartition("/")[2][:6] for line in err.splitlines()] == ["a.yaml", "b.yaml", "c.yaml"]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["validat"], "No such command 'validat'"),
        (["validate", "--jsn"], "No such option: --jsn"),
    ],
)
def test_wrong_usage_is_told_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


def test_help_has_an_example_and_loads_only_what_it_needs() -> None:
    script = (
        "import sys; from meshcache.cli import main\n"
        "try: main(['validate', '--help'])\n"
        "finally: print(sorted({'grpc', 'yaml', 'envoy_data_plane', 'meshcache.policy.models'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Example: meshcache validate" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "meshcache", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("meshcache ")


def test_clusters_of_refreshes_are_checked_where_they_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "apiVersion: meshcache.dev/v1alpha1\nkind: CachePolicy\nmetadata: {name: p}\nspec:\n  refresh: {via: replica}\n"
    )
    assert run(capsys, "validate", str(file))[0] == 0
    assert run(capsys, "validate", "--refresh-cluster", "replica", str(file))[0] == 0
    status, _, said = run(capsys, "validate", "--refresh-cluster", "other", str(file))
    assert status == 1
    assert f"{file}:5:18: spec.refresh.via: replica is none of the clusters" in said


@pytest.mark.parametrize(
    ("budget", "said"), [("0", "; the filter in Envoy keeps nothing (budgets.filter)"), ("9Mi", "")]
)
def test_that_nothing_is_kept_in_envoy_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, budget: str, said: str
) -> None:
    head = "apiVersion: meshcache.dev/v1alpha1\nkind: CacheConfig\nmetadata: {name: default}\n"
    (tmp_path / "a.yaml").write_text(f"{head}spec: {{budgets: {{filter: {budget}}}}}\n")
    found = f"ok: 1 document in 1 file: 0 policies, 0 routes, 0 experiments{said}\n"
    assert run(capsys, "validate", "--strict", str(tmp_path)) == (0, found, "")


def test_json_says_how_many_errors_are_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(BAD + "".join(f"    field{number}: 1\n" for number in range(150)))
    status, out, _ = run(capsys, "validate", "--json", str(tmp_path))
    found = json.loads(out)
    assert (status, len(found["errors"]), found["more"]) == (1, 100, 52)


def test_standard_input(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sound = (SHIPPED / "ttl-only.yaml").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sound)))
    assert run(capsys, "validate", "-")[:2] == (0, "ok: 1 document in 1 file: 1 policy, 0 routes, 0 experiments\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    assert run(capsys, "validate", "-")[2].startswith("-:6:13: spec.freshness.maxTtl: ")
    monkeypatch.setattr(sys, "stdin", None)
    assert run(capsys, "validate", "-") == (1, "", "-: standard input is closed\n")
