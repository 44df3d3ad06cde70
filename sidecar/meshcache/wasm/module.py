"""The built filter: where it is, and what it is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from meshcache.wasm import building

MODULE: Final = Path(__file__).with_name("meshcache.wasm")
"""Where the build of the package puts it."""


class Module(NamedTuple):
    """A built filter, or what lies in its place (see `fault`)."""

    path: Path
    content: bytes
    version: str
    """Empty when it does not say: then it was not built here, or not wholly written."""
    current: bool
    """False: it was built from other sources than those that lie beside this package."""

    @property
    def sha256(self) -> str:
        """Of the content, in hex: what Envoy and Istio check a fetched module by."""
        return hashlib.sha256(self.content).hexdigest()


def sources() -> Path:
    """The Zig sources: inside an installed package, or beside it in a clone."""
    package = Path(__file__).resolve().parent
    installed = package / "src"
    return installed if installed.is_dir() else package.parents[2] / "wasm" / "src"


def fault(found: Module | None) -> str:
    """Why `found` is nothing that Envoy could load, in two words at most; empty for a module that was built here."""
    if found is None:
        return "not built"
    return "" if found.version else "damaged"


def find(path: Path = MODULE) -> Module | None:
    """The file at `path`, whatever is in it; None when there is none. Raises `OSError` when it cannot be read."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    told = building.stamp(content)
    return Module(path, content, told.version if told is not None else "", told is None or _is_current(told))


def _is_current(told: building.Stamp) -> bool:
    try:
        return told.sources == building.digest(sources())
    except building.BuildError:
        # Without sources nothing can be newer.
        return True
