"""The command `meshcache`, one module for each subcommand."""

import os
import signal

if os.getpid() == 1:
    # The kernel keeps from the first process of a container every signal that it does not mind: one that came while the
    # modules below are loaded would be lost, and the container would run on until it is killed.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))

from meshcache.cli.app import main

__all__ = ["main"]
