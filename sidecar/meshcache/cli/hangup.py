"""What SIGHUP means: on a terminal that it has gone; elsewhere nothing, as policies are read whenever they change."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger


def on_hangup(loop: asyncio.AbstractEventLoop, stop: Callable[[], None], log: FilteringBoundLogger) -> None:
    """Have SIGHUP call `stop` on a terminal, and elsewhere be told and no more. Who ignores it (nohup) goes on to.

    To be called at the start: of a terminal that has gone there is nothing to be seen any more.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    if any(map(os.isatty, range(3))):
        loop.add_signal_handler(signal.SIGHUP, stop)
    else:
        loop.add_signal_handler(signal.SIGHUP, log.info, "SIGHUP asks for nothing: policies are read when they change")
