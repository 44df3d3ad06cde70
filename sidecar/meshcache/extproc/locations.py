"""Where stores are, by what the options say."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit


def cold_folder(url: str) -> Path | None:
    """The folder that `--cold` names: a path or a `file://` URL. None for none; `ValueError` for anything else."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    if parts.scheme or parts.netloc:
        raise ValueError(f"the cold tier is a folder (a path or file:///path) so far, not {url!r}")
    return Path(url)
