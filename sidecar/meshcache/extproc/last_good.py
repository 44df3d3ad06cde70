"""The last good policy set on disk, so that a restart beside a broken folder still has policies to serve by."""

from __future__ import annotations

from pathlib import Path

import msgspec

from meshcache.tiers.whole_file import replace_file


class LastGood(msgspec.Struct, frozen=True):
    """A policy set that has compiled."""

    generation: int
    digest: str
    files: tuple[tuple[str, str], ...]


class LastGoodFile:
    """Reads and replaces the file. A file that cannot be read counts as absent."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> LastGood | None:
        """The set that was saved last, or None."""
        try:
            return msgspec.msgpack.decode(self._path.read_bytes(), type=LastGood)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def save(self, good: LastGood) -> None:
        """Replace the file as a whole. Raises `OSError`."""
        replace_file(self._path, msgspec.msgpack.encode(good))
