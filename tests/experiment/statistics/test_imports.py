"""Numbers are for those who judge experiments: a worker, of which there is one for each core, does without numpy."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_worker_imports_neither_numpy_nor_scipy() -> None:
    code = "import sys, meshcache.extproc.worker; print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
