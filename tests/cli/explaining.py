"""`meshcache explain` in this process, and what tests ask it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshcache.cli import main

Explain = Callable[..., tuple[int, str, str]]
"""Its exit status and what it has written to stdout and stderr, for its arguments."""
SHIPPED = Path(__file__).parents[2] / "policies"
URL = ("--url", "http://localhost:10000/v1/images/7?x=1&utm_source=y")


def explaining(capsys: pytest.CaptureFixture[str]) -> Explain:
    def run(*arguments: str, policies: Path = SHIPPED) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["explain", "--policies", str(policies), *arguments])
        output = capsys.readouterr()
        return int(ended.value.code or 0), output.out, output.err

    return run
