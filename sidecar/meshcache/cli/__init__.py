"""The command `meshcache`, one module for each subcommand."""

from meshcache.cli.app import main

__all__ = ["main"]
