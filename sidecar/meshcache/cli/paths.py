"""Where things are: sockets in a data folder, the policies that ship with meshcache."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import Final

DEFAULT_DATA: Final = Path(".meshcache")


def run_folder(data: Path) -> Path:
    """Where the sockets are of a sidecar with this data folder, unless it is told otherwise."""
    return data / "run"


def admin_socket(data: Path) -> Path:
    """Where the admin API of the sidecar with this data folder listens."""
    return run_folder(data) / "admin.sock"


def shipped_policies() -> Path:
    """The example policies: inside an installed package, or beside the sources in a clone."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "examples" / "policies"
    return installed if installed.is_dir() else package.parents[1] / "policies"


def own_name() -> str:
    """What to type, here and now, to call this installation's `meshcache`."""
    script = Path(sys.executable).with_name("meshcache")
    if not script.exists():
        return f"{quote(sys.executable)} -m meshcache"
    found = shutil.which("meshcache")
    if found is not None and script.samefile(found):
        return "meshcache"
    here = Path.cwd()
    return quote(str(script.relative_to(here) if script.is_relative_to(here) else script))
