"""Small files that are there whole, or as they were before."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, body: bytes, *, synced: bool = True) -> None:
    """Put `body` in the place of what is at `path`: readers see one or the other. Blocks; raises `OSError`.

    With `synced` one of the two is there after a loss of power as well.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
