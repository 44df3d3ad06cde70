"""The parts that `meshcache up` keeps running: programs of its own, and Envoy."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Protocol

from meshcache.process import Backoff, end, send_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from meshcache.envoy.process import EnvoyProcess


class Part(Protocol):
    """A process that is started again when it ends."""

    name: str

    async def start(self) -> None:
        """Start it. Raises `OSError` or `EnvoyError`."""
        ...

    async def wait(self) -> int:
        """Its exit status once it has ended (negative: the signal)."""
        ...

    async def kill(self) -> None:
        """End it at once; returns when it is gone. Does nothing when it does not run."""
        ...


class ModulePart:
    """A module of this package in a process of its own, which the kernel ends when this one ends."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Callable[[], Sequence[str]],
        *,
        environment: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self._module = module
        self._arguments = arguments
        self._environment = dict(environment or {})
        self._fds = tuple(fds)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Of its process, as long as that runs."""
        return None if self._process is None or self.ended else self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has been started and has ended."""
        return self._process is not None and self._process.returncode is not None

    async def start(self) -> None:
        """Start it. Raises `OSError`."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            *self._arguments(),
            "--parent",
            str(os.getpid()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env=os.environ | self._environment,
            pass_fds=self._fds,
            # Out of the terminal's reach: what Ctrl-C means is decided here, and in order.
            process_group=0,
        )

    async def wait(self) -> int:
        """Its exit status once it has ended (negative: the signal)."""
        return 0 if self._process is None else await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it, if it runs."""
        if self._process is not None:
            send_signal(self._process, number)

    async def stop(self, grace: float) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds."""
        if self._process is not None:
            await end(self._process, grace)

    async def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            await end(self._process, 1.0, signal.SIGKILL)


class EnvoyPart:
    """Envoy, as the others are."""

    name = "envoy"

    def __init__(self, process: EnvoyProcess) -> None:
        self.process = process

    async def start(self) -> None:
        """Start it. Raises `EnvoyError` or `OSError`."""
        await self.process.stop()
        await self.process.start()

    async def drain(self, timeout: float) -> bool:  # noqa: ASYNC109 - handed on
        """Let requests in flight finish; whether all did so within `timeout` seconds. None are where no Envoy is."""
        return self.process.pid is None or await self.process.drain(timeout)

    async def wait(self) -> int:
        """Its exit status once it has ended (negative: the signal)."""
        return await self.process.wait()

    async def kill(self) -> None:
        """End it at once."""
        await self.process.stop(grace=0)


async def keep(part: Part, log: FilteringBoundLogger) -> None:
    """Start `part` again whenever it ends, until cancelled. It has been started already."""
    backoff = Backoff()
    began = time.monotonic()
    while True:
        status = await part.wait()
        wait = backoff.after(time.monotonic() - began)
        ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        log.warning(f"{part.name} ended", status=ended, restart_in=wait)
        while True:
            await asyncio.sleep(wait)
            began = time.monotonic()
            try:
                await part.start()
            except Exception as error:
                # Whatever it is, a part that is given up would be missed for good.
                wait = backoff.after(0)
                log.error(f"{part.name} could not be started", error=error, again_in=wait)
            else:
                log.info(f"{part.name} started again")
                break
