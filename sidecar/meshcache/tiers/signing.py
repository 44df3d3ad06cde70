"""The secrets of an installation: keys that sign stored entries, and the secret of experiment assignment."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEY_ID_BYTES = 8
MAC_BYTES = 32
_MIN_SECRET_BYTES = 32
_MAX_SECRET_BYTES = 4096
_KEY_FILES = "signing-*.key"
_FIRST_KEY_FILE = "signing-0001.key"
_ASSIGNMENT_FILE = "assignment.secret"


class KeyringError(Exception):
    """The key folder cannot be used; the message names the file and never holds a secret."""


class Keyring:
    """Signing keys with their ids. The last one signs, all of them verify.

    A key id is derived from its key, so that two machines with the same key agree on it whatever the file is
    called.
    """

    __slots__ = ("_by_id", "_signing_key", "assignment_secret", "key_id")

    def __init__(self, keys: Sequence[bytes], assignment_secret: bytes) -> None:
        """`keys` oldest first, at least one, each of at least 32 bytes."""
        if not keys:
            raise ValueError("at least one signing key is needed")
        if any(len(key) < _MIN_SECRET_BYTES for key in keys):
            raise ValueError(f"a signing key must have at least {_MIN_SECRET_BYTES} bytes")
        self._by_id = {_key_id(key): key for key in keys}
        self._signing_key = keys[-1]
        self.key_id = _key_id(keys[-1])
        """Id of the key that signs (8 bytes)."""
        self.assignment_secret = assignment_secret
        """For the keyed hash that assigns units to experiment arms; independent of the signing keys."""

    @classmethod
    def load_or_create(cls, directory: Path) -> Keyring:
        """Read every `signing-*.key` and `assignment.secret` of `directory`, and make what is missing.

        Files are ordered by name: to rotate, add `signing-0002.key`, later remove `signing-0001.key`. Their
        content, less white space at its ends, is the key. New files are mode 0600 and appear whole or not at all;
        of several processes that start at once one makes them and all read the same. Raises `KeyringError`.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not any(directory.glob(_KEY_FILES)):
                _create(directory, _FIRST_KEY_FILE)
            keys = [_read(path) for path in sorted(directory.glob(_KEY_FILES))]
            assignment_path = directory / _ASSIGNMENT_FILE
            if not assignment_path.exists():
                _create(directory, _ASSIGNMENT_FILE)
            return cls(keys, _read(assignment_path))
        except OSError as error:
            where = error.filename or directory
            raise KeyringError(f"{where}: {error.strerror or type(error).__name__}") from error

    def sign(self, context: bytes, payload: bytes | memoryview) -> bytes:
        """The MAC (32 bytes) of `payload` in `context`, by the newest key. See `verify`."""
        return _mac(self._signing_key, context, payload)

    def verify(self, key_id: bytes, context: bytes, payload: bytes | memoryview, mac: bytes) -> bool:
        """Whether `mac` was made by the key `key_id` over exactly this payload in exactly this context.

        Raises `KeyError` when there is no such key.
        """
        return hmac.compare_digest(_mac(self._by_id[key_id], context, payload), mac)

    def __repr__(self) -> str:
        return f"Keyring(key_id={self.key_id.hex()}, keys={len(self._by_id)})"


def read_assignment_secret(directory: Path) -> bytes | None:
    """The secret of experiment assignment in `directory`; None when there is none. Makes nothing.

    Raises `KeyringError` for one that cannot be read.
    """
    path = directory / _ASSIGNMENT_FILE
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyringError(f"{path}: {error.strerror or type(error).__name__}") from error


def _mac(key: bytes, context: bytes, payload: bytes | memoryview) -> bytes:
    """HMAC-SHA256 under a key derived for the context by HMAC-SHA256.

    Equal to signing both in one, but a large payload need not be copied behind its context.
    """
    return hmac.digest(hmac.digest(key, context, "sha256"), payload, "sha256")


def _key_id(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=KEY_ID_BYTES, person=b"meshcache key id").digest()


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MAX_SECRET_BYTES + 1)
    secret = content.strip()
    if not _MIN_SECRET_BYTES <= len(secret) <= _MAX_SECRET_BYTES:
        raise KeyringError(f"{path}: must hold between {_MIN_SECRET_BYTES} and {_MAX_SECRET_BYTES} bytes")
    return secret


def _create(directory: Path, name: str) -> None:
    """Put a new secret at `name`, unless another process has done so first."""
    scratch = directory / f".{name}.{secrets.token_hex(8)}"
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(_MIN_SECRET_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # A link, not a rename: it fails where the name is taken, so the first process to come wins.
        os.link(scratch, directory / name)
    except FileExistsError:
        pass
    finally:
        scratch.unlink(missing_ok=True)
