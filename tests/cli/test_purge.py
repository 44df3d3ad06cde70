"""`meshcache purge` before it reaches a meshcache: what is wrong usage, and what is told without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcache.cli import main

LONG = "x" * 1500


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name what is to be purged, for example --tag product-17, or --all"),
        (["--soft"], "name what is to be purged"),
        (["--url", "example.com/a"], "--url: expected http://HOST/PATH or https://HOST/PATH, got 'example.com/a'"),
        (["--url", "https://example.com/a#b"], "--url: expected a host, and no fragment (#)"),
        (["--prefix", "images"], "--prefix: expected https://HOST/PATH, or /PATH for every host, got 'images'"),
        (["--tag", "a,b"], "--tag: expected at most 1024 characters, without commas"),
        (["--tag", "a", "--tag", LONG], f"got '{LONG[:80]}...'"),
        (["--route", ""], "--route: expected 1 to 8192 characters"),
        (["--subject", ""], "--subject: expected the name of a person"),
        (["--tag", "a", "--tag", "\udcff"], "--tag: expected text in UTF-8, got '\\udcff'"),
        (["--url", "https://example.com/\udcff"], "--url: expected text in UTF-8"),
        (["--subject", "\udcff"], "--subject: expected text in UTF-8"),
        (["--all", "--wait", "-1"], "--wait: expected at least 0"),
        (["--all", "--wait", "soon"], "--wait: expected a number"),
        (["everything"], "unexpected extra argument(s) (everything) (see `meshcache purge --help`)"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["purge", "--data", "nowhere", *arguments])
    output = capsys.readouterr()
    assert (ended.value.code, output.out) == (2, "")
    assert told in output.err
    assert len(output.err.splitlines()) == 1


def test_no_meshcache_is_no_wrong_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(
            ["purge", "--data", str(tmp_path), "--url", "https://example.com/a b", "--prefix", "/x", "--subject", "al"]
        )
    assert ended.value.code == 1
    told = f"meshcache: no meshcache answers on {tmp_path}/run/admin.sock: give its --data or --socket\n"
    assert capsys.readouterr().err == told
