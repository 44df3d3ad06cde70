"""The token that every write over the admin API has to bring."""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME: Final = "admin.token"
"""In the data folder, unless another file is named."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""What file systems say in which no file can have two names: FAT, some shares, some in user space."""
_LEAST: Final = 16
_MOST: Final = 4096


class TokenError(Exception):
    """The file cannot be used. One line, names the file, and never holds a token."""


class Token:
    """A secret that is compared in constant time."""

    def __init__(self, value: str, name: str) -> None:
        """`name` stands for it in the audit log."""
        self._value = value.encode()
        self.name = name

    @classmethod
    def load_or_create(cls, path: Path) -> Token:
        """The token in the file at `path`, made (mode 0600) when there is none. Raises `TokenError`."""
        if path.exists():
            return cls.load(path)
        value = secrets.token_urlsafe(32)
        # Whole or not at all: half a token, or none, would keep every later start from getting further.
        scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with open(os.open(scratch, _NEW, 0o600), "w", encoding="ascii") as file:
                file.write(value + "\n")
                file.flush()
                os.fsync(file.fileno())
            _name(scratch, path)
        except FileExistsError:
            # Another process was faster.
            return cls.load(path)
        except OSError as error:
            raise TokenError(f"{path}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                scratch.unlink()
        return cls(value, path.name)

    @classmethod
    def load(cls, path: Path) -> Token:
        """The token in the file at `path`, less white space at its ends. Raises `TokenError`."""
        try:
            with path.open(encoding="utf-8") as file:
                value = file.read(_MOST + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not text"
            raise TokenError(f"{path}: {reason}") from error
        if not _LEAST <= len(value) <= _MOST or not value.isprintable():
            raise TokenError(f"{path}: must hold one line of {_LEAST} to {_MOST} characters")
        return cls(value, path.name)

    @property
    def header(self) -> dict[str, str]:
        """The field by which a request brings it."""
        return {"authorization": f"Bearer {self._value.decode()}"}

    def opens(self, authorization: str | None) -> bool:
        """Whether a request with this `authorization` may write."""
        scheme, _, value = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(value.strip().encode(), self._value)


def _name(scratch: Path, path: Path) -> None:
    """Have what is in `scratch` at `path`, too, where nothing is yet. Raises `OSError`."""
    try:
        os.link(scratch, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Of two processes that do so in the same moment, one has a token that is not in the file.
        scratch.rename(path)
