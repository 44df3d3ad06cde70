"""The short form of `make proofs PARTS=swaps`: a few policy sets under load; answers that would tell of a mixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcache.policy.compile import compile_documents
from meshcache.policy.documents import Documents
from proofs.swaps import LIFE, Run, files, measure, problems, read_set, swap


@pytest.mark.alone
@pytest.mark.e2e
async def test_no_request_fails_or_is_decided_by_two_sets() -> None:
    run, told = await measure(20, 200)
    # How soon is for quiet machines; `make test` runs on busy ones.
    found = [problem for problem in problems(run, told) if "in effect after" not in problem]
    assert not found
    assert told["swaps"] == 20
    assert told["requests"] > 100
    assert told["effectMs"]["p50"] < 1000


def said(policy: str, number: int, age: int = 0) -> bytes:
    left = (LIFE + number) * 60 - age
    return (
        f"HTTP/1.1 200 OK\r\nage: {age}\r\ncontent-length: 2\r\n"
        f'cache-status: meshcache; hit; ttl={left}; detail="tier=hot policy={policy}"\r\n\r\n'
    ).encode()


def test_an_answer_by_two_sets_is_seen() -> None:
    run = Run(Path(), 0, 1.0, saved=8, effective=7)
    for head in (said("odd", 7), said("even", 8, age=5)):
        run._judge("/a", head, b"/a", 7)
    assert not run.wrong
    run._judge("/a", said("odd", 8), b"/a", 7)
    assert "mixture: policy odd with the lifetime of set 8" in next(iter(run.wrong))
    run.wrong.clear()
    for number in (6, 9):
        run._judge("/a", said("odd" if number % 2 else "even", number), b"/a", 7)
    run._judge("/a", b"HTTP/1.1 200 OK\r\n\r\n", b"/a", 7)
    run._judge("/a", b"HTTP/1.1 503 No\r\n\r\n", b"", 7)
    run._judge("/a", said("odd", 7), b"/b", 7)
    assert sum(run.wrong.values()) == 5
    assert read_set(said("even", 3, age=20)) == (3, "even")


def test_sets_whose_files_were_mixed_would_be_valid(tmp_path: Path) -> None:
    mixed = files(3) | {"routes.yaml": files(4)["routes.yaml"]}
    snapshot = compile_documents(Documents.of(mixed.items()), generation=1, secret=b"s")
    assert {route.policy.name for route in snapshot.routes if route.policy is not None} == {"even"}
    for number in range(3):
        swap(tmp_path, number)
        assert {path.name: path.read_text() for path in tmp_path.glob("*.yaml")} == files(number)
    assert len(list(tmp_path.glob("..version-*"))) == 1
