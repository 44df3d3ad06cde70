"""The secret by which an installation assigns units to arms, for commands that tell which arm that would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def assignment_secret(data: Path) -> bytes:
    """That of the meshcache with the data folder `data`. Raises `CommandError`."""
    from meshcache.cli.app import CommandError
    from meshcache.tiers.signing import KeyringError, read_assignment_secret

    try:
        secret = read_assignment_secret(data / "keys")
    except KeyringError as error:
        raise CommandError(str(error)) from None
    if secret is None:
        raise CommandError(f"no meshcache has run with the data folder {data} yet: leave --data out, or start it first")
    return secret
