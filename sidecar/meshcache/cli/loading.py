"""What signals mean while the modules of a command are loaded: an end, with nothing to be seen of where that was."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


def _end(number: int, _frame: object) -> None:
    os._exit(128 + number)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Inside it Ctrl-C ends the process quietly. Who ignores it goes on to."""
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def mind_termination() -> None:
    """Have SIGTERM end the first process of a container, too.

    The kernel keeps from that process every signal that it does not mind: one that came before the command minds it
    would be lost, and the container would run on until it is killed.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)
