"""Parts in one text that no other parts make."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def join(parts: Iterable[bytes]) -> bytes:
    """The parts, each with its length in front."""
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])
