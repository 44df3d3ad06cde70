"""The command `meshcache`, one module for each subcommand."""

from meshcache.cli.loading import loading, mind_termination

mind_termination()
with loading():
    from meshcache.cli.app import main

__all__ = ["main"]
