"""The secrets that a worker and its supervisor work with: the same ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from meshcache.tiers.signing import Keyring, KeyringError

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from meshcache.extproc.control import WorkerOptions


def load_keys(options: WorkerOptions, log: FilteringBoundLogger) -> Keyring:
    """The keys of the folder that was named; the installation's own where that one is empty and cannot be filled.

    So a mounted Secret may be left out. Keys that are there and cannot be used are an error, never replaced: raises
    `KeyringError`.
    """
    if options.keys_dir:
        given = Path(options.keys_dir)
        try:
            return Keyring.load_or_create(given)
        except KeyringError as error:
            if given.is_dir() and any(given.iterdir()):
                raise
            log.warning("no keys in the folder that was named; this installation uses its own", reason=str(error))
    return Keyring.load_or_create(Path(options.data_dir) / "keys")


def assignment_secret(options: WorkerOptions, log: FilteringBoundLogger) -> bytes:
    """What units are assigned to arms by, and what keys the hash of subjects. Raises `ValueError` without keys."""
    try:
        return load_keys(options, log).assignment_secret
    except KeyringError as error:
        raise ValueError(f"the keys of this installation cannot be read: {error}") from error
