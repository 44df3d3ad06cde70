"""Small helpers for processes that start processes: die with the parent, hold a folder, wait before a restart."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_UNIX_PATH_BYTES: Final = 107
"""What fits into `sockaddr_un.sun_path` with its final NUL (unix(7))."""

_PR_SET_PDEATHSIG: Final = 1


class StartError(Exception):
    """Something that is needed to start is not there. The text is one line that says what to do."""


class UsageError(StartError):
    """What an option says makes no sense, whatever there is on this machine."""


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the process that started it ends, however that ends (Linux).

    `parent` is the pid that this process was started by; when it is already gone, the process exits at once.
    SIGKILL on purpose: a worker that outlives its supervisor would unlink its successor's socket on its way out.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


class FolderLock:
    """Keeps a folder to one process. The kernel releases the lock when the process ends, however that ends."""

    def __init__(self, path: Path, option: str = "--data") -> None:
        """`path` is a file in the folder, which `option` names."""
        self._path = path
        self._option = option
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises `StartError` when another process holds it or the file cannot be made."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartError(f"cannot write to {self._path.parent}: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            by = f" (pid {holder})" if holder else ""
            raise StartError(
                f"{self._path.parent} is in use by another meshcache{by}: stop it or choose another {self._option}"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Let the folder go."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Backoff:
    """Seconds to wait before the next restart: none after a long life, then doubling up to a bound.

    The first wait is short (`first`), because a process that was killed comes back at once; one that cannot
    start must not spin.
    """

    def __init__(self, first: float = 0.05, most: float = 5.0, forgive_after: float = 10.0) -> None:
        self._first = first
        self._most = most
        self._forgive_after = forgive_after
        self._next = first

    def after(self, lived: float) -> float:
        """The wait for a process that lived for `lived` seconds."""
        if lived >= self._forgive_after:
            self._next = self._first
        wait = self._next
        self._next = min(self._most, self._next * 2)
        return wait


def make_folder(path: Path, what: str) -> Path:
    """Make `path` if need be and see that it can be written to. Raises `StartError`."""
    _check_name(path)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o750)
    except OSError as error:
        raise StartError(f"cannot make the {what} folder {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise StartError(f"the {what} folder {path} is not writable")
    return path


def _check_name(path: Path) -> None:
    """Refuse what cannot be told to workers and to Envoy, which take text. Raises `StartError`."""
    whole = os.fsencode(path.absolute())
    try:
        whole.decode()
    except UnicodeDecodeError:
        name = whole.decode("utf-8", "backslashreplace")
        raise StartError(f"{name}: the name is not UTF-8; choose another") from None


def check_unix_path(path: Path) -> Path:
    """Refuse a socket path that the kernel or Envoy's configuration would refuse. Raises `StartError`."""
    _check_name(path)
    if len(os.fsencode(path)) > MAX_UNIX_PATH_BYTES:
        raise StartError(f"{path} is too long for a unix socket: choose a shorter folder")
    return path


def parse_address(text: str, option: str) -> tuple[str, int]:
    """`HOST:PORT` as a pair; IPv6 in brackets. Raises `UsageError` that names `option`."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{option} {text!r} is not HOST:PORT, for example 127.0.0.1:8080")
    return host, int(port)


def bind_tcp(host: str, port: int, option: str) -> socket.socket:
    """A bound TCP socket (not listening). Raises `StartError` when the address is taken or not this machine's."""
    try:
        family, kind, proto, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise StartError(f"{option} {host}:{port} cannot be used: {error.strerror}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # Two sockets that allow reuse may both bind; only listening tells that the address is free.
        bound.listen(socket.SOMAXCONN)
    except OSError as error:
        bound.close()
        raise StartError(f"{option} {host}:{port} cannot be used: {error.strerror}; choose another") from error
    return bound


@contextlib.contextmanager
def socket_file(path: Path, mode: int) -> Iterator[None]:
    """Inside it, what is bound to the unix socket `path` gets exactly that mode.

    The folder is this program's own: a socket file that stands there is a killed process's, and is removed.
    """
    # The mode is set by the umask, not afterwards: in between, anyone could connect.
    before = os.umask(0o777 & ~mode)
    try:
        path.unlink(missing_ok=True)
        yield
    finally:
        os.umask(before)


def bind_unix(path: Path, mode: int) -> socket.socket:
    """A bound unix socket (not listening) with exactly that mode. Raises `StartError`."""
    check_unix_path(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_file(path, mode):
            bound.bind(str(path))
    except OSError as error:
        bound.close()
        raise StartError(f"cannot listen on {path}: {error.strerror}") from error
    return bound


def is_gone(path: Path) -> bool:
    """Whether there is nothing at `path` any more. What cannot be seen is taken to be there.

    Of unix sockets that are in use: whoever tidies up folders takes them for leftovers. Who is connected stays so, and
    nobody else gets in. Not by the number of the file, which some file systems change as they like.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def send_signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to `process` if it runs.

    Not by `Process.send_signal`: that one looks first whether the process has ended, and by this takes the exit
    status away from the event loop that waits for it.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def end(process: asyncio.subprocess.Process, grace: float, first: int = signal.SIGTERM) -> None:
    """Ask `process` to end, wait up to `grace` seconds, then kill it; returns when it is gone."""
    send_signal(process, first)
    await wait_or_kill(process, grace)


async def wait_or_kill(process: asyncio.subprocess.Process, grace: float) -> bool:
    """Wait up to `grace` seconds for `process` to end by itself, then kill it. Returns whether it did so by itself."""
    try:
        await asyncio.wait_for(process.wait(), grace)
    except TimeoutError:
        send_signal(process, signal.SIGKILL)
        await process.wait()
        return False
    return True


def raise_if_cancelled() -> None:
    """Go through with a cancellation of this task that was lost: the client of Redis does that to one that comes
    together with a reply, and a loop over its replies would never end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
