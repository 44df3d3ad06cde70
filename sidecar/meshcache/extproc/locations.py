"""Where stores are, by what the options say, and what this pod is called beside them."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from meshcache.policy.values import is_folder_path

WARM_FOLDER: Final = "warm"
"""Of the LMDB file, in the data folder."""
_POD_ID: Final = "pod.id"
_POD_DIGITS: Final = 16


def cold_folder(url: str) -> Path | None:
    """The folder that `--cold` names: a path or a `file://` URL. None for none; `ValueError` for anything else."""
    if not url:
        return None
    if is_folder_path(url):
        return Path(url)
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ValueError(f"the cold tier is a folder (a path or file:///path) so far, not {url!r}")
    return Path(unquote(parts.path))


def pod_id(data: Path) -> str:
    """This pod's id among those that share a store: made at first start, and kept as long as the data folder is."""
    path = data / _POD_ID
    with contextlib.suppress(OSError, ValueError):
        found = path.read_text("ascii").strip()
        if len(found) == _POD_DIGITS and found.isalnum():
            return found
    made = secrets.token_hex(_POD_DIGITS // 2)
    with contextlib.suppress(OSError):
        path.write_text(made + "\n", "ascii")
    return made
