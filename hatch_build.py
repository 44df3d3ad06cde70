"""The step of the package's build that compiles the filter for Envoy, with the compiler of the `ziglang` wheel."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILDING = "sidecar/meshcache/wasm/building.py"


class FilterHook(BuildHookInterface):
    """Puts the module into the source tree, where editable installs look for it and wheels take it from."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - as hatchling calls it
        """Compile, or end the build with one line that says why not."""
        root = Path(self.root)
        building = _load(root / BUILDING)
        try:
            sources, target = root / "wasm" / "src", root / "sidecar" / "meshcache" / "wasm" / "meshcache.wasm"
            # For an editable install this is called twice: for its metadata, and for itself.
            if not building.is_current(target, sources):
                building.build(sources, target)
        except (building.BuildError, OSError) as error:
            sys.stderr.write(getattr(error, "output", ""))
            sys.exit(f"meshcache: {error}")


def _load(path: Path) -> ModuleType:
    """The module by its file: the package itself is not installed yet, nor is what it imports."""
    spec = importlib.util.spec_from_file_location("meshcache_building", path)
    if spec is None or spec.loader is None:
        sys.exit(f"meshcache: {path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    # Its classes are looked up by the name of their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
