"""`meshcache diff`, run as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from meshcache.cli import main

SHIPPED = Path(__file__).parents[2] / "policies"


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("old", "new"):
        shutil.copytree(SHIPPED, tmp_path / name)
    return tmp_path / "old", tmp_path / "new"


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["diff", *map(str, arguments)])
    output = capsys.readouterr()
    return int(ended.value.code or 0), output.out, output.err


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_nothing(capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path]) -> None:
    edit(sets[1] / "lru-swr.yaml", "defaultTtl: 60s", "defaultTtl: 1m")
    assert run(capsys, *sets) == (0, "nothing changes\n", "")
    status, out, _ = run(capsys, *sets, "--json")
    assert (status, json.loads(out)) == (0, {"same": True, "changes": [], "traffic": [], "warnings": []})


def test_something(capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path]) -> None:
    old, new = sets
    edit(new / "lru-swr.yaml", "maxTtl: 1h", "maxTtl: 30m")
    edit(new / "images.yaml", "{prefix: /v1/images}", "{prefix: /v2/images}")
    status, out, err = run(capsys, old, new)
    assert (status, err) == (1, "")
    assert out.splitlines() == [
        f"CachePolicy lru-swr changed ({new}/lru-swr.yaml:6)",
        f"  freshness.maxTtl: 1h -> 30m ({new}/lru-swr.yaml:12)",
        "  used by arm candidate of swr-rollout on route images",
        "  => freshness.maxTtl: shorter, at once for what is stored as well",
        f"CacheRoute images changed ({new}/images.yaml:6)",
        f"  match[0].path.prefix: /v1/images -> /v2/images ({new}/images.yaml:9)",
        f"CacheExperiment swr-rollout reached ({new}/images.yaml:29)",
        "  => what was counted and decided about it before counts no more (its text or a policy of it has changed)",
        "traffic",
        "  GET any.example/v1/images/...: images (ttl-only) -> everything-else (not cached)",
        "  GET any.example/v2/images/...: everything-else (not cached) -> images (ttl-only)",
    ]
    status, out, _ = run(capsys, old, new, "--json")
    found = json.loads(out)
    assert (status, found["same"]) == (1, False)
    assert found["changes"][0]["consequences"] == [
        {"effect": "shorter-lifetime", "text": "freshness.maxTtl: shorter, at once for what is stored as well"}
    ]
    assert found["traffic"][0]["new_route"] == "everything-else"


def test_what_cannot_be_compared(capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = sets
    edit(new / "lru-swr.yaml", "maxTtl: 1h", "maxTtl: 1d")
    status, out, err = run(capsys, old, new)
    assert (status, out) == (2, "")
    assert err.splitlines()[0].startswith(f"{new}/lru-swr.yaml:12:13: spec.freshness.maxTtl: days are not a unit")
    assert err.splitlines()[1] == f"meshcache: NEW: the policies in {new} are refused"
    assert run(capsys, tmp_path / "gone", old)[0] == 2
    assert run(capsys, old)[0] == 2


def test_files(capsys: pytest.CaptureFixture[str], sets: tuple[Path, Path]) -> None:
    old, new = (folder / "ttl-only.yaml" for folder in sets)
    edit(new, "maxTtl: 10m", "maxTtl: 5m")
    status, out, _ = run(capsys, old, new)
    assert (status, out.splitlines()[1]) == (1, f"  freshness.maxTtl: 10m -> 5m ({new}:12)")
