"""A store behind an address that leads elsewhere one day, as a name or a virtual address does after a failover."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from tier_helpers import key, resource

from fixtures_valkey import LocalValkey, place, running_valkey
from meshcache.tiers.base import TierError, Trouble
from meshcache.tiers.guarded import GuardedTier
from meshcache.tiers.hooks import NoHooks
from meshcache.tiers.redis import RedisTier

pytestmark = pytest.mark.e2e
R = resource(1)


class Relay:
    """Takes connections to `target`. Those that it has cut off stay open, and nothing passes through them any more."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._open: set[asyncio.Task[None]] = set()
        self._deaf: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def connections(self) -> int:
        return len(self._open)

    def cut_off(self) -> None:
        """As a firewall does that has forgotten the connections, or a machine without power."""
        self._deaf |= self._open

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        self._open.add(own)
        there, back = await asyncio.open_connection("127.0.0.1", self.target)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(1 << 16):
                    if own not in self._deaf:
                        sink.write(data)
                        await sink.drain()

        pumps = [asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(there, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass
        finally:
            for task in pumps:
                task.cancel()
            back.close()
            writer.close()
            self._open.discard(own)


@pytest.fixture
def second() -> Iterator[LocalValkey]:
    """Another server than `valkey`, of this test's own."""
    with running_valkey() as server:
        yield server


@pytest.fixture
def of_a_cluster() -> Iterator[LocalValkey]:
    """A server of a cluster, that has all slots for itself."""
    # By default its port among the cluster is its own plus 10,000, which may be none.
    with place() as bus:
        port = str(bus.getsockname()[1])
        with running_valkey(arguments=("--cluster-enabled", "yes", "--cluster-port", port)) as server:
            with server.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
                while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
                    time.sleep(0.01)
            yield server


@pytest.fixture
async def relay(valkey: LocalValkey) -> AsyncIterator[Relay]:
    relay = Relay(valkey.port)
    await relay.start()
    yield relay
    await relay.stop()


@pytest.fixture
async def tier(relay: Relay) -> AsyncIterator[RedisTier]:
    """With as many connections open as it may have."""
    # How long so many take is up to the machine.
    tier = RedisTier(f"redis://127.0.0.1:{relay.port}/0", socket_timeout=10.0, connect_timeout=10.0)
    await asyncio.gather(*(tier.get(key(n), resource(n)) for n in range(64)))
    assert relay.connections > 8
    yield tier
    await tier.close()


async def until(probe: Callable[[], Awaitable[bool]], within: float = 60.0) -> float:
    """Seconds until `probe` is true."""
    began = time.monotonic()
    while not await probe():
        assert time.monotonic() - began < within
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def test_a_server_that_has_become_a_replica_is_left_for_where_the_address_leads_now(
    tier: RedisTier, relay: Relay, valkey: LocalValkey, second: LocalValkey
) -> None:
    with valkey.client() as client:
        # It keeps the connections of its clients, and refuses their writes.
        client.replicaof("127.0.0.1", str(second.port))
    relay.target = second.port
    try:
        with pytest.raises(TierError) as caught:
            await tier.invalidate(R)
        assert caught.value.kind is Trouble.REFUSED

        async def paid() -> bool:
            return not tier.owed

        await until(paid)
        # All connections lead there, not the one on which it was seen alone.
        await asyncio.gather(*(tier.put(key(n), b"v", 100.0) for n in range(64)))
        with second.client() as client:
            assert client.exists(*(f"mc1:k:{key(n).hex()}" for n in range(64))) == 64
    finally:
        with valkey.client() as client:
            client.replicaof("NO", "ONE")


async def test_connections_that_lead_nowhere_any_more_cost_a_moment(tier: RedisTier, relay: Relay) -> None:
    guarded = GuardedTier(tier, NoHooks())

    async def read() -> bool:
        return await guarded.read(lambda: tier.get(key(1), R), 1.0) is not None

    async def all_well() -> bool:
        # As many at once as there may be connections, so that none is left out for long.
        return all([all(await asyncio.gather(*(read() for _ in range(32)))) for _ in range(5)])

    relay.cut_off()
    assert not await all_well()
    await until(all_well)


async def test_a_cluster_is_refused_by_that_name(of_a_cluster: LocalValkey) -> None:
    tier = RedisTier(of_a_cluster.url)
    with pytest.raises(TierError, match="Redis Cluster, and a single server is needed"):
        await tier.ping()
    await tier.close()
