"""A soak that a test has started, and what of it runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Started:
    """`python -m soak`, with these variables in its environment."""

    def __init__(self, **environment: str) -> None:
        self._mark = f"SOAK_STARTED={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT), str(ROOT / "tests")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "soak"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, name: value, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, line: str) -> None:
        """Until it has said this on stderr. Raises `EOFError` when it ends before."""
        assert self.process.stderr is not None
        for said in self.process.stderr:
            if line in said:
                return
        raise EOFError(line)

    def running(self) -> set[str]:
        """The names of all processes that it has started, itself among them, whoever their parents are by now."""
        names = set()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    names.add((folder / "comm").read_text().strip())
        return names
