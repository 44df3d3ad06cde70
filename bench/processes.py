"""Child processes of a measurement: started, waited for until they answer, and always stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from meshcache.process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

LOOPBACK = "127.0.0.1"
LOG_TAIL_LINES = 15
STOP_SECONDS = 10.0


class MeasurementError(Exception):
    """What was to be measured could not be set up, or did not do what it is measured for; `str()` says why."""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Puts `what` in front of the `MeasurementError`s of the block."""
    try:
        yield
    except MeasurementError as error:
        raise MeasurementError(f"{what}: {error}") from error


def free_port() -> int:
    """Return a TCP port that nobody listens on now (another process may still take it first)."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(address: int | Path) -> Callable[[], bool]:
    """Return a readiness check: a loopback port (int) or a unix socket (path) accepts connections."""

    def check() -> bool:
        family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
        target = (LOOPBACK, address) if isinstance(address, int) else str(address)
        with socket.socket(family) as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(target) == 0

    return check


@contextmanager
def running(
    name: str,
    command: Sequence[str | Path],
    *,
    ready: Callable[[], bool],
    folder: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 120.0,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for the length of the block, its output in `folder/name.log`.

    It gets a process group of its own, so that a Ctrl-C reaches it through us and in order, and does not outlive us.
    It is stopped with SIGTERM, and after `STOP_SECONDS` its whole group with SIGKILL. Raises `MeasurementError` with
    the end of its log when it is not ready within `timeout` seconds, ends before, or has ended by itself when the
    block is left.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else {**os.environ, **env},
            cwd=folder,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        _wait_until_ready(name, child, ready, log, timeout)
        yield child
        if child.poll() is not None:
            raise MeasurementError(f"{name} ended by itself with status {child.returncode}:\n{tail(log)}")
    finally:
        _stop(child)


def raise_on_termination() -> None:
    """Turn SIGTERM into `SystemExit`, so that the children are stopped on the way out."""

    def leave(signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, leave)


def tail(log: Path, lines: int = LOG_TAIL_LINES) -> str:
    """Return the last lines of a log file, for an error message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _wait_until_ready(
    name: str, child: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, timeout: float
) -> None:
    deadline = time.monotonic() + timeout
    while not ready():
        if child.poll() is not None:
            raise MeasurementError(f"{name} ended with status {child.returncode}:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise MeasurementError(f"{name} was not ready within {timeout:.0f} s:\n{tail(log)}")
        time.sleep(0.05)


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
