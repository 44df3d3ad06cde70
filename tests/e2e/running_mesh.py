"""`meshcache up` as a process of its own, and what a test wants to ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from filter_module import built_filter
from meshcache.policy.sources import read_files
from meshcache.process import die_with_parent

START_TIMEOUT = 180.0
"""Seconds in which all its processes have started on a machine with much else to do: half a minute, not two seconds."""
STOP_TIMEOUT = 30.0
PATIENCE = 60.0
"""Seconds after which something that should come about by itself has not."""
SLOWEST = 5.0
"""Seconds that an answer under load may take: far above any timeout of Envoy, far below a stall."""
POLL = 0.02

Headers = Mapping[str, str] | list[tuple[str, str]]


@dataclass(frozen=True)
class Verdict:
    """What `cache-status` says of this cache; all empty when the field is not there."""

    hit: bool
    fwd: str
    stored: bool
    ttl: int | None
    detail: str

    @property
    def tier(self) -> str:
        return self._word("tier")

    @property
    def arm(self) -> str:
        return self._word("arm")

    @property
    def policy(self) -> str:
        return self._word("policy")

    def _word(self, name: str) -> str:
        found = re.search(rf"\b{name}=(\S+)", self.detail)
        return found[1] if found else ""


def verdict(answer: httpx.Response) -> Verdict:
    """The last member of `cache-status`, which is the one of the cache nearest to the client."""
    text = answer.headers.get("cache-status", "")
    own = text.rpartition("meshcache;")[2]
    fwd = re.search(r"\bfwd=([a-z-]+)", own)
    ttl = re.search(r"\bttl=(-?\d+)", own)
    detail = re.search(r'\bdetail="([^"]*)"', own)
    return Verdict(
        hit=own.startswith(" hit"),
        fwd=fwd[1] if fwd else "",
        stored="; stored" in own,
        ttl=int(ttl[1]) if ttl else None,
        detail=detail[1] if detail else "",
    )


async def eventually(probe: Callable[[], Awaitable[Any]], within: float = PATIENCE) -> Any:
    """The first true value of `probe`, asked again and again; its last value when time is up."""
    until = time.monotonic() + within
    while True:
        found = await probe()
        if found or time.monotonic() > until:
            return found
        await asyncio.sleep(POLL)


@dataclass
class Mesh:
    """One running `meshcache up` (or `serve`); sockets have short paths because `folder` has one."""

    folder: Path
    origin: str
    policies: Path
    arguments: tuple[str, ...] = ()
    wasm: bool = False
    """With the filter in Envoy, which is built anew when its sources have changed."""
    data: Path = field(init=False)
    base: str = ""
    metrics_url: str = ""
    client: httpx.AsyncClient = field(init=False)
    _process: asyncio.subprocess.Process | None = None

    def __post_init__(self) -> None:
        self.data = self.folder / "data"

    # -- its life ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start and wait until it says that it is ready."""
        if self.wasm:
            await asyncio.to_thread(built_filter)
        await self._spawn(
            *("up", "--origin", self.origin, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"),
            *("--policies", str(self.policies), "--data", str(self.data), "--drain-timeout", "2"),
            *("--wasm" if self.wasm else "--no-wasm", *self.arguments),
        )
        said = ""
        until = time.monotonic() + START_TIMEOUT
        while "stop      " not in said:
            assert self._process is not None
            assert self._process.returncode is None, self.log
            assert time.monotonic() < until, self.log
            await asyncio.sleep(POLL)
            said = (self.folder / "stdout").read_text()
        self.base = re.findall(r"ready on (http://\S+)", said)[0]
        self.metrics_url = re.findall(r"^metrics +(http://\S+)", said, re.MULTILINE)[0]
        self.client = httpx.AsyncClient(base_url=self.base, trust_env=False, timeout=20)

    async def serve(self, *arguments: str) -> None:
        """Start the sidecar alone and wait until its workers are ready; Envoy is the test's affair."""
        await self._spawn(
            *("serve", "--policies", str(self.policies), "--data", str(self.data)),
            *("--metrics-listen", "127.0.0.1:0", *arguments),
        )

        async def ready() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                status = await self.status()
                self.metrics_url = f"http://{status['metricsAddress']}/metrics"
                return bool(status["ready"])
            return False

        assert await eventually(ready, START_TIMEOUT), self.log

    async def ended(self) -> bool:
        """Whether it has ended by itself, and well."""
        assert self._process is not None
        assert not self._process.returncode, self.log
        return self._process.returncode is not None

    async def stop(self) -> None:
        """SIGTERM, and see that nothing of it is left running."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL, and see that nothing of it is left running."""
        await self._end(signal.SIGKILL)

    @property
    def log(self) -> str:
        """What it wrote to stderr."""
        return (self.folder / "stderr").read_text()

    async def _spawn(self, *arguments: str) -> None:
        parent = os.getpid()
        command = [str(Path(sys.executable).with_name("meshcache")), *arguments]
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("ab") as err:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=out, stderr=err, preexec_fn=lambda: die_with_parent(parent)
            )

    async def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        self._process = None
        if hasattr(self, "client"):
            await self.client.aclose()
        family = _descendants(process.pid)
        if process.returncode is None:
            process.send_signal(number)
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
            except TimeoutError:
                process.kill()
                await process.wait()
                msg = f"did not stop:\n{self.log}"
                raise AssertionError(msg) from None

        async def gone() -> bool:
            return not any(_alive(pid) for pid in family)

        assert await eventually(gone), f"left running: {[pid for pid in family if _alive(pid)]}"

    # -- what it answers ---------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    async def get(self, path: str, headers: Headers | None = None, method: str = "GET") -> httpx.Response:
        """One request; no header but `headers` and what HTTP itself needs."""
        answer = await self.client.send(httpx.Request(method, self.base + path, headers=headers))
        self.client.cookies.clear()
        return answer

    async def hit(self, path: str, headers: Headers | None = None) -> httpx.Response | None:
        """One request; its answer if it came from the cache."""
        answer = await self.get(path, headers)
        return answer if verdict(answer).hit else None

    async def settled(self, path: str, headers: Headers | None = None, body: bytes | None = None) -> bool:
        """Wait until every worker answers from the cache (with `body`); whether that came about.

        Envoy gives them requests in turn. A worker that is asked before the other's answer is in the store that they
        share asks the origin, too: only after this do counts of the origin's requests say anything.
        """

        async def all_hit() -> bool:
            answers = [await self.get(path, headers) for _ in range(6)]
            return all(verdict(answer).hit and body in (None, answer.content) for answer in answers)

        return bool(await eventually(all_hit))

    async def raw(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own and read one answer, head and body, as it is on the wire.

        It ends with the announced length or else with the connection, which the request should ask to be closed.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        answer = b""
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(data)
                answer += await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"\r\ncontent-length: (\d+)\r\n", answer)
                answer += await reader.read() if length is None else await reader.readexactly(int(length[1]))
        except asyncio.IncompleteReadError as error:
            answer += error.partial
        except ConnectionError:
            pass
        finally:
            writer.close()
        return answer

    # -- what it says of itself --------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """The admin API's `/status`."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.data / "run" / "admin.sock"))
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE) as client:
            found: dict[str, Any] = (await client.get("http://meshcache/status")).json()
            return found

    async def put_policies(self, text: str) -> None:
        """Make `text` the only policy file, and wait until every worker works by it."""
        new = self.policies / "new"
        new.write_text(text)
        new.rename(self.policies / "policies.yaml")
        digest = (await asyncio.to_thread(read_files, [self.policies])).digest

        async def installed() -> bool:
            status = await self.status()
            policies, workers = status["policies"], status["workers"]
            return policies["digest"] == digest and all(
                worker["generation"] == policies["generation"] for worker in workers
            )

        assert await eventually(installed), self.log

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run another `meshcache` command; its exit status and what it wrote."""
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("meshcache")),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def worker_pids(self) -> list[int]:
        """The pids of the workers, in their order."""
        return [worker["pid"] for worker in (await self.status())["workers"]]

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of `meshcache_<name>` with these labels; 0 when there are none."""
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            text = (await client.get(self.metrics_url)).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"meshcache_{name}" and labels.items() <= sample.labels.items()
        )


@contextlib.asynccontextmanager
async def steady_load(mesh: Mesh, name: str) -> AsyncIterator[Counter[str]]:
    """Requests all the time, a few at once, old paths and new ones; counts what came of them.

    An answer that took longer than `SLOWEST` is not right, whatever it says: someone waited for it.
    """
    seen: Counter[str] = Counter()
    stop = asyncio.Event()

    async def client(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            path = f"/{'stale' if turn % 3 else 'plain'}/{name}-load/{number if turn % 4 else f'{number}-{turn}'}"
            began = time.monotonic()
            try:
                answer = await mesh.get(path)
            except Exception as error:
                seen[repr(error)] += 1
                continue
            took = time.monotonic() - began
            if answer.status_code != 200 or not answer.text.startswith(path):
                seen[f"{answer.status_code} {answer.text[:80]} for {path}"] += 1
            else:
                seen["right" if took <= SLOWEST else f"right after {took:.1f} s"] += 1

    clients = [asyncio.create_task(client(number)) for number in range(4)]
    try:
        yield seen
    finally:
        stop.set()
        await asyncio.gather(*clients)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return family
