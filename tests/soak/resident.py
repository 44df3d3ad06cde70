"""How much memory a process has, by the kernel's own account."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r"^(VmRSS|RssFile):\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes in memory."""

    total: int
    own: int
    """Without the pages of mapped files, which the page cache holds anyway: the program text, the warm tier's file."""


def resident(pid: int) -> Resident:
    """The resident set of a process. Raises `OSError` when it is gone."""
    found = {name: int(kib) * 1024 for name, kib in _LINE.findall(Path(f"/proc/{pid}/status").read_text())}
    return Resident(found["VmRSS"], found["VmRSS"] - found["RssFile"])
