"""The command as a real process: what it says, which processes it has started, and whether they are gone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import msgspec

from meshcache.extproc.status import Status

GOOD = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: plain}
spec: {eviction: ttl, freshness: {mode: rfc9111}}
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheRoute
metadata: {name: all}
spec: {match: [{path: {prefix: /}}], policyRef: {name: plain}}
"""
BAD = GOOD.replace("eviction: ttl", "eviction: nonsense")


LOOK = 0.04
"""Seconds between two looks at all processes of the machine, which take it some time."""


def until(condition, seconds=60.0, what="the condition", every=0.01):
    """Poll until `condition()` is true and return what it gave; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        time.sleep(every)
    return value


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    return _stat(pid) is not None


def descendants(pid: int) -> dict[int, str]:
    """All running processes below `pid`, with their command lines."""
    parents = {int(entry): stat for entry in os.listdir("/proc") if entry.isdigit() and (stat := _stat(int(entry)))}
    found: dict[int, str] = {}
    below = {pid}
    while below:
        below = {child for child, parent in parents.items() if parent in below and child not in found}
        for child in below:
            try:
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found


def _stat(pid: int) -> int | None:
    """The parent of a process that runs; None when it does not."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent)


class Running:
    """`meshcache ARGUMENTS` in `cwd`, in a session of its own; its output is collected as it comes."""

    def __init__(self, *arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "meshcache", *arguments],
            cwd=cwd,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started: set[int] = set()
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=lambda: self.out.extend(self.process.stdout), daemon=True),
            threading.Thread(target=lambda: self.err.extend(self.process.stderr), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdout(self) -> str:
        return "".join(self.out)

    @property
    def stderr(self) -> str:
        return "".join(self.err)

    def children(self) -> dict[int, str]:
        """The processes below it now; all that were ever seen are remembered for `assert_nothing_left`."""
        found = descendants(self.pid)
        self.started |= set(found)
        return found

    def child(self, *words: str) -> int:
        """The one process below it whose command line holds all `words`."""
        return until(
            lambda: next((pid for pid, line in self.children().items() if all(w in line for w in words)), None),
            what=f"a process {words}",
            every=LOOK,
        )

    def wait(self, seconds: float = 90.0) -> int:
        """Its exit status; what it had started is looked at meanwhile."""
        deadline = time.monotonic() + seconds
        while (status := self.process.poll()) is None:
            assert time.monotonic() < deadline, f"still running after {seconds} s:\n{self.stdout}{self.stderr}"
            self.children()
            time.sleep(LOOK)
        for reader in self._readers:
            reader.join(10)
        return status

    def said(self, text: str, seconds: float = 120.0) -> str:
        """Wait until stdout or stderr holds `text`."""

        def look() -> str | None:
            everything = self.stdout + self.stderr
            if text in everything:
                return everything
            assert self.process.poll() is None, f"ended with {self.process.poll()}:\n{everything}"
            return None

        return until(look, seconds, f"{text!r} in the output")

    def signal(self, number: signal.Signals) -> None:
        self.children()
        os.kill(self.pid, number)

    def assert_nothing_left(self, seconds: float = 20.0) -> None:
        assert self.started, "no child was ever seen: nothing is proved"
        until(lambda: not [pid for pid in self.started if alive(pid)], seconds, "the end of all it had started")

    def close(self) -> None:
        self.children()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        until(lambda: not [pid for pid in self.started if alive(pid)], what="the end of all it had started")
        for reader in self._readers:
            reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        # Shown by pytest when the test has failed.
        print(f"{self.process.args}: {self.process.returncode}\n{self.stdout}{self.stderr}")


class Place:
    """A working folder whose path is short enough for unix sockets, and the commands run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.policies = folder / "policies"
        self.policies.mkdir()
        self.write(GOOD)
        self.commands: list[Running] = []

    def write(self, text: str) -> None:
        (self.policies / "a.yaml").write_text(text)

    def run(self, *arguments: str, environment: dict[str, str] | None = None) -> Running:
        command = Running(*arguments, cwd=self.folder, environment=environment)
        self.commands.append(command)
        return command

    def serve(self, *arguments: str) -> Running:
        """`meshcache serve` on this place's folders and any metrics port."""
        return self.run("serve", "--data", "data", "--metrics-listen", "127.0.0.1:0", *arguments)

    def up(self, *arguments: str) -> Running:
        """`meshcache up` on this place's folders and any ports."""
        ports = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
        return self.run("up", "--data", "data", *ports, *arguments)

    def status(self) -> Status | None:
        """What the admin socket says; None when nobody answers."""
        transport = httpx.HTTPTransport(uds=str(self.data / "run" / "admin.sock"))
        try:
            with httpx.Client(transport=transport, timeout=20) as client:
                return msgspec.json.decode(client.get("http://x/status").content, type=Status)
        except (httpx.HTTPError, OSError):
            return None

    def ready(self, command: Running) -> Status:
        """Wait until all workers serve."""

        def look() -> Status | None:
            assert command.process.poll() is None, f"ended with {command.process.poll()}:\n{command.stderr}"
            status = self.status()
            return status if status and status.ready and all(worker.ready for worker in status.workers) else None

        return until(look, 120, "all workers ready")

    def close(self) -> None:
        for command in self.commands:
            command.close()


def make_place() -> tuple[tempfile.TemporaryDirectory[str], Place]:
    folder = tempfile.TemporaryDirectory(prefix="mc-")
    return folder, Place(Path(folder.name))


def base_url(text: str) -> str:
    """The address in the first line that `meshcache up` prints."""
    return re.search(r"ready on (http://\S+)", text)[1]
