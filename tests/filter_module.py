"""The filter for Envoy, as tests need it: built from the sources as they are."""

from __future__ import annotations

from pathlib import Path

from meshcache.wasm import building, module


def built_filter() -> Path:
    """The module where the running meshcache looks for it; compiled if it is not there, or older than its sources."""
    if not building.is_current(module.MODULE, module.sources()):
        building.build(module.sources(), module.MODULE)
    return module.MODULE
