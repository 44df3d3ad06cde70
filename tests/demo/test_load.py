"""What the demonstration's load counts, on a server that answers as asked."""

from __future__ import annotations

import asyncio
import contextlib
from math import isnan

from meshcache.demo.load import Load, LoadOptions, Tally

ANSWERS = (
    b'cache-status: meshcache; hit; ttl=5; detail="tier=hot arm=lru-swr"\r\n',
    b'cache-status: meshcache; fwd=uri-miss; stored; detail="route=images arm=ttl-only policy=x"\r\n',
    b"x-nothing: 1\r\n",
)


def test_a_tally_without_requests_has_no_numbers() -> None:
    assert isnan(Tally().hit_ratio)
    assert isnan(Tally().mean)
    assert all(map(isnan, Tally().quantiles(0.5, 0.95)))


def test_quantiles_are_of_the_latencies_in_order() -> None:
    tally = Tally(hits=3)
    tally.latencies.extend([4.0, 1.0, 3.0, 2.0])
    assert (tally.hit_ratio, tally.mean, tally.quantiles(0.5, 1.0)) == (0.75, 2.5, [3.0, 4.0])


async def test_answers_count_for_the_arm_that_they_name() -> None:
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                status = b"HTTP/1.1 503 Oh\r\n" if served % 4 == 3 else b"HTTP/1.1 200 OK\r\n"
                writer.write(status + ANSWERS[served % 4 % 3] + b"content-length: 0\r\n\r\n")
                served += 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    load = Load(f"http://{host}:{port}", LoadOptions(rate=500, network=0.002))
    failures: list[str] = []
    running = asyncio.create_task(load.run(failures.append))
    # Counted, and not only answered: a busy machine may do much of the one before the other.
    async with asyncio.timeout(60):
        while sum(tally.requests for tally in load.tallies.values()) + load.failed < 40:  # noqa: ASYNC110  counts tell
            await asyncio.sleep(0.01)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    server.close()
    first = load.start_anew()
    assert load.tallies == {}
    assert {"lru-swr", "ttl-only", ""} == set(first)
    assert first["lru-swr"].hits == first["lru-swr"].requests > 5
    assert first["ttl-only"].origin == first["ttl-only"].requests > 5
    assert first[""].hits == first[""].origin == 0
    assert load.failed == len(failures) > 5
    assert set(failures) == {"status 503"}
    assert all(latency >= 0.002 for tally in first.values() for latency in tally.latencies)
