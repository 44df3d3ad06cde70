"""Policy sets swapped under load: no request fails, none is decided by two sets, each is in effect soon.

`python -m proofs.swaps`, or `make proofs PARTS=swaps`. Real Envoy and four workers; the files of a set change together
as those of a mounted ConfigMap do, and the next swap follows when every worker has said that it works by the last.
Environment: `SWAPS` (1000), `RATE` requests a second (150). The last line is JSON.

What tells a mixture: each set has the route and the arms under the policy `even` or `odd`, by the number of the set,
in one file, and in another the lifetimes that both policies give in this set alone. An answer names its policy, and
what is left of its lifetime; the two have to be of one set, and of one that was in force while the request was under
way. Some requests wait at the origin while sets change, so that a response by another set than its request's shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import uvloop

from bench.processes import LOOPBACK, MeasurementError, accepts, free_port, raise_on_termination, running
from bench.settings import positive, positive_number

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS = 4
WITHIN = 0.5
"""Seconds from a save to its effect in every worker, of 99 in 100."""
LOAD_SHARE = 1 / 3
"""Of the machine, that the load may take."""
PATIENCE = 10.0
"""Seconds after which a set that is not in effect never will be, and an answer that has not come neither."""
POLL = 0.01
CLIENTS = 16
SLOW = 0.15
"""Seconds for which some answers are under way."""
LIFE = 10_000
"""Minutes: the lifetime by the set 0. By each set it is a minute more than by the one before."""

HEAD = "apiVersion: meshcache.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
POLICY = "  tiers: {{warm: {{deadline: 2s}}, cold: {{deadline: 2s}}}}\n  freshness: {{maxTtl: {minutes}m}}\n"
ROUTE = "  match: [{{path: {{prefix: /{name}}}}}]\n  policyRef: {{name: {policy}}}\n"
EXPERIMENT = """\
  routeRef: {{name: tested}}
  unit: [{{header: x-user-id}}]
  arms:
    - {{name: one, policyRef: {{name: {policy}}}, weight: 50}}
    - {{name: two, policyRef: {{name: {policy}}}, weight: 50}}
"""
NAMES = ("even", "odd")


def files(number: int) -> dict[str, str]:
    """The set of this number."""
    policy = NAMES[number % 2]
    lives = "---\n".join(
        HEAD.format(kind="CachePolicy", name=name) + POLICY.format(minutes=LIFE + number) for name in NAMES
    )
    routes = "---\n".join(
        HEAD.format(kind="CacheRoute", name=name) + ROUTE.format(name=name, policy=policy)
        for name in ("plain", "tested")
    )
    experiment = HEAD.format(kind="CacheExperiment", name="e") + EXPERIMENT.format(policy=policy)
    return {"lives.yaml": lives, "routes.yaml": routes, "tests.yaml": experiment}


def swap(folder: Path, number: int) -> None:
    """Put a set in the place of the last, as the kubelet does it: all files at once."""
    version = folder / f"..version-{number}"
    version.mkdir()
    for name, text in files(number).items():
        (version / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    before = (folder / "..data").resolve()
    link = folder / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(folder / "..data")
    if number:
        for path in before.iterdir():
            path.unlink()
        before.rmdir()


_SAID = re.compile(rb'meshcache;[^"]*?\bttl=(-?\d+).*?\bdetail="[^"]*?\bpolicy=(\w+)', re.IGNORECASE)
_AGE = re.compile(rb"\r\nage: (\d+)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


def read_set(head: bytes) -> tuple[int, str] | None:
    """The number of the set by whose lifetime an answer was judged, and the policy that it names."""
    said, age = _SAID.search(head), _AGE.search(head)
    if said is None:
        return None
    left = int(said[1]) + (int(age[1]) if age is not None else 0)
    return round(left / 60) - LIFE, said[2].decode()


@dataclass
class Run:
    """What is known while it goes on."""

    folder: Path
    port: int
    rate: float
    saved: int = 0
    """The newest set in the folder."""
    effective: int = 0
    """The newest set that every worker works by."""
    requests: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    hits: int = 0
    seconds: list[float] = field(default_factory=list)
    straddled: int = 0
    """Requests during which the set in effect changed."""
    stopped: bool = False

    async def run(self, swaps: int) -> None:
        """Swap so many times under load."""
        random = Random(1)
        clients = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]
        try:
            for number in range(1, swaps + 1):
                await asyncio.sleep(random.uniform(0, 0.05))
                began = time.monotonic()
                self.saved = number
                swap(self.folder / "policies", number)
                await self._in_effect(number + 1)
                self.seconds.append(time.monotonic() - began)
                self.effective = number
                if dead := [client for client in clients if client.done()]:
                    dead[0].result()
            await asyncio.sleep(2 * SLOW)
        finally:
            self.stopped = True
            await asyncio.gather(*clients)

    async def _in_effect(self, generation: int) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            found = await status(self.folder)
            # Filters in Envoy are workers too: each answers by the set that it goes by.
            filters = [one for one in found["filters"] if one["living"]]
            if all(one["generation"] == generation for one in (*found["workers"], *filters)):
                return
            if time.monotonic() > until:
                raise MeasurementError(f"set {generation - 1} was not in effect within {PATIENCE:g} s: {found}")
            await asyncio.sleep(POLL)

    async def _client(self, number: int) -> None:
        """One connection: a request now and then, so that all clients together have their rate."""
        random = Random(number)
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        try:
            while not self.stopped:
                await asyncio.sleep(random.expovariate(self.rate / CLIENTS))
                self.requests += 1
                kind = random.random()
                name = f"slow/{self.requests}" if kind < 0.05 else f"new/{self.requests}" if kind < 0.2 else f"{number}"
                path = f"/{'tested' if random.random() < 0.5 else 'plain'}/{name}"
                effective = self.effective
                writer.write(f"GET {path} HTTP/1.1\r\nhost: a\r\nx-user-id: u{random.randrange(99)}\r\n\r\n".encode())
                try:
                    async with asyncio.timeout(PATIENCE):
                        head = await reader.readuntil(b"\r\n\r\n")
                        length = _LENGTH.search(head)
                        body = await reader.readexactly(int(length[1])) if length is not None else b""
                except (OSError, EOFError, TimeoutError) as error:
                    self.wrong[f"no answer: {error!r}"] += 1
                    writer.close()
                    reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
                    continue
                self._judge(path, head, body, effective)
        finally:
            writer.close()

    def _judge(self, path: str, head: bytes, body: bytes, effective: int) -> None:
        if not head.startswith(b"HTTP/1.1 200 ") or body != path.encode():
            self.wrong[f"answer: {head[:60]!r} {body[:40]!r}"] += 1
            return
        found = read_set(head)
        if found is None:
            self.wrong[f"no policy: {head!r}"] += 1
            return
        number, policy = found
        self.hits += b"meshcache; hit" in head
        self.straddled += self.effective != effective
        if NAMES[number % 2] != policy:
            self.wrong[f"mixture: policy {policy} with the lifetime of set {number}: {head!r}"] += 1
        elif not effective <= number <= self.saved:
            self.wrong[
                f"set {number}, asked when {effective} was in effect and answered when {self.saved} was saved"
            ] += 1

    def found(self, share: float, seconds: float) -> dict[str, Any]:
        """What came of it, for the last line."""
        ordered = sorted(self.seconds)
        return {
            "swaps": len(ordered),
            "workers": WORKERS,
            "requests": self.requests,
            "wrong": sum(self.wrong.values()),
            "hits": self.hits,
            "requestsDuringSwaps": self.straddled,
            "effectMs": {
                "p50": _ms(statistics.median(ordered)),
                "p99": _ms(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]),
                "max": _ms(ordered[-1]),
            },
            "loadShare": round(share, 3),
            "seconds": round(seconds, 1),
        }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def problems(run: Run, told: dict[str, Any]) -> list[str]:
    """What does not hold."""
    found = [f"{count} times: {what}" for what, count in run.wrong.most_common(10)]
    if told["effectMs"]["p99"] >= WITHIN * 1000:
        found.append(f"in effect after {told['effectMs']['p99']} ms in 99 of 100 swaps")
    if told["loadShare"] > LOAD_SHARE:
        found.append(f"the load took {told['loadShare']:.0%} of the machine: nothing can be said of times")
    if not (told["hits"] and told["requestsDuringSwaps"]):
        found.append("no request was a hit, or none was under way during a swap")
    return found


async def status(folder: Path) -> dict[str, Any]:
    """The admin API's `/status`."""
    reader, writer = await asyncio.open_unix_connection(folder / "data" / "run" / "admin.sock")
    try:
        writer.write(b"GET /status HTTP/1.1\r\nhost: meshcache\r\nconnection: close\r\n\r\n")
        found: dict[str, Any] = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
        return found
    finally:
        writer.close()


async def _origin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the path, for good; what is called slow a little later."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            if b"/slow/" in path:
                await asyncio.sleep(SLOW)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncache-control: max-age=99999999\r\n\r\n" % len(path)
            )
            writer.write(path)
    writer.close()


@contextlib.contextmanager
def meshcache(folder: Path, origin_port: int) -> Iterator[int]:
    """`meshcache up` under the set 0; its port."""
    (folder / "policies").mkdir()
    swap(folder / "policies", 0)
    port = free_port()
    command: list[str | Path] = [Path(sys.executable).parent / "meshcache", "up", "--log-level", "info"]
    command += ["--origin", f"http://{LOOPBACK}:{origin_port}", "--listen", f"{LOOPBACK}:{port}"]
    command += ["--policies", folder / "policies", "--data", folder / "data", "--workers", str(WORKERS)]
    command += ["--metrics-listen", f"{LOOPBACK}:0", "--drain-timeout", "2"]
    with running("meshcache", command, ready=accepts(port), folder=folder, timeout=90):
        yield port


async def measure(swaps: int, rate: float) -> tuple[Run, dict[str, Any]]:
    """Start everything, and swap so many times."""
    server = await asyncio.start_server(_origin, LOOPBACK, 0)
    with tempfile.TemporaryDirectory(prefix="mc-swaps-", dir="/tmp") as folder:
        starting = meshcache(Path(folder), server.sockets[0].getsockname()[1])
        port = await asyncio.to_thread(starting.__enter__)
        try:
            run = Run(Path(folder), port, rate)
            began, used = time.monotonic(), time.process_time()
            await run.run(swaps)
            seconds = time.monotonic() - began
            share = (time.process_time() - used) / seconds / (os.cpu_count() or 1)
        except BaseException:
            starting.__exit__(*sys.exc_info())
            raise
        await asyncio.to_thread(starting.__exit__, None, None, None)
    server.close()
    return run, run.found(share, seconds)


def main() -> int:
    """Swap; returns the exit status."""
    raise_on_termination()
    try:
        swaps, rate = positive("SWAPS", 1000), positive_number("RATE", 150)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            run, told = runner.run(measure(swaps, rate))
    except MeasurementError as error:
        print(f"swaps: {error}", file=sys.stderr)
        return 1
    found = problems(run, told)
    for problem in found:
        print(f"swaps: {problem}", file=sys.stderr)
    print(json.dumps(told))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
