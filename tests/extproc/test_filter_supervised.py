"""A supervisor with real workers, and filters that ask it and them: what is kept, purged, rolled back, invalidated."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from envoy_streams import body, request, response
from filters import PlayedFilter
from supervised import EXPERIMENT, PROCESS, ROUTED, channel_to, conditions, pids, until

from meshcache.admin.server import EmbeddedServer
from meshcache.decisions import AskedFor
from meshcache.engine.key import cache_key
from meshcache.experiment.overlay import Overlay, Phase
from meshcache.extproc.child import COMMAND
from meshcache.extproc.deciding import Deciding
from meshcache.extproc.filter_feed import filter_app
from meshcache.extproc.purger import PurgeRequest
from meshcache.message import Headers, Request
from meshcache.process import bind_unix
from meshcache.rfc.fields import format_http_date
from meshcache.wasm.labels import Kind, label, labels_of_routes
from meshcache.wasm.marks import ASK, DROP, KEEP, Ask, Keep, parse_drop, parse_keep, write_ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from supervised import Bench

    from meshcache.extproc.supervisor import Supervisor

pytestmark = pytest.mark.e2e

SET = ROUTED.replace("spec: {eviction: ttl}", "spec: {eviction: ttl, freshness: {defaultTtl: 60s}}")
NO_MEMORY = """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: default}
spec: {budgets: {filter: 0}}
"""
WHO = {"uid": 1}


@asynccontextmanager
async def fed(supervisor: Supervisor, count: int = 2) -> AsyncIterator[list[PlayedFilter]]:
    """Filters that have the plan and nothing to drop any more."""
    socket = supervisor.filter_socket
    server = EmbeddedServer(filter_app(supervisor.filters), bind_unix(socket, 0o600))
    await server.start()
    filters = [PlayedFilter(socket, number + 1) for number in range(count)]
    try:
        for one in filters:
            async with asyncio.timeout(30):
                while (await one.ask()).status_code != 200:  # noqa: ASYNC110  nothing to await from outside
                    await asyncio.sleep(0.01)
            while await one.poll() or not one.plan:
                pass
        yield filters
    finally:
        supervisor.filters.close()
        for one in filters:
            await one.close()
        await server.stop()


class Envoy:
    """One filter's requests at one worker."""

    def __init__(self, supervisor: Supervisor, one: PlayedFilter, index: int = 0) -> None:
        self.supervisor = supervisor
        self.filter = one
        self.channel = channel_to(supervisor, index)

    @property
    def secret(self) -> bytes:
        # Behind magic, format and id.
        return self.filter.bodies[-1][14:46]

    def asked(self, why: AskedFor = AskedFor.MISS, method: str = "GET", path: str = "/a") -> Any:
        snapshot = self.supervisor.snapshot
        asked = Request(method, "example.com", path, Headers())
        selection = snapshot.select(asked)
        assert selection.policy is not None
        digest = bytes(32)
        if why is not AskedFor.UNSAFE:
            namespace, revision = selection.namespace, snapshot.revision(asked)
            digest = cache_key(asked, selection.policy.key, namespace=namespace, revision=revision).digest
        message = request(method, path)
        value = write_ask(Ask(bytes.fromhex(self.filter.plan), digest, why), self.secret)
        message.request_headers.headers.headers.add(key=ASK, raw_value=value.encode())
        return message

    async def talk(self, *messages: Any) -> list[Any]:
        call = self.channel.stream_stream(PROCESS, request_serializer=lambda message: message.SerializeToString())()
        replies = []
        for message in messages:
            await call.write(message)
            replies.append(ProcessingResponse.FromString(await call.read()))
        call.cancel()
        return replies

    async def miss(self, **more: str) -> Keep | None:
        """A miss that is stored, and what may be kept of it."""
        head = {"content_type": "text/plain", "content_length": "3", "date": format_http_date(time.time())} | more
        replies = await self.talk(self.asked(), response(**head), body(b"one", end=True))
        return self.kept(replies[1].response_headers.response.header_mutation)

    async def hit(self) -> Keep | None:
        [reply] = await self.talk(self.asked())
        assert reply.immediate_response.body == b"one"
        return self.kept(reply.immediate_response.headers)

    def kept(self, mutation: Any) -> Keep | None:
        for option in mutation.set_headers:
            if option.header.key == KEEP:
                found = parse_keep(option.header.raw_value.decode(), self.secret)
                assert found is not None
                return found[2]
        return None


async def test_what_is_kept_invalidated_and_purged(bench: Bench) -> None:
    bench.write(SET)
    supervisor = await bench.start(2, COMMAND)
    async with fed(supervisor) as (one, two):
        first, second = Envoy(supervisor, one), Envoy(supervisor, two, 1)
        assert await first.miss() is not None
        keep = await first.hit()
        assert keep is not None
        assert keep.fresh_until - keep.birth == 60_000
        # An unsafe request that the filter has asked about tells it with its answer, and all by the feed: its client
        # may leave before the answer has come to the filter.
        replies = await second.talk(second.asked(AskedFor.UNSAFE, "DELETE"), response(204, end=True))
        [option] = [
            option
            for option in replies[1].response_headers.response.header_mutation.set_headers
            if option.header.key == DROP
        ]
        drop = parse_drop(option.header.raw_value.decode(), second.secret)
        assert drop is not None
        assert set(drop[2].labels or ()) & set(keep.labels)
        for count, made in enumerate((None, request("DELETE")), 1):
            if made is not None:
                # One that it has not asked about comes by the feed alone.
                await second.talk(made, response(204, end=True))
            for envoy in (one, two):
                news = await envoy.poll(20.0)
                assert news is not None
                assert news.labels == drop[2].labels
            counters = supervisor.metrics().counters
            assert counters["filter_drops_total"][("invalidation", "labels")] == count
        await until(lambda: supervisor.metrics().counters["filter_asks_total"].get(("miss", "keep")) == 2)
        await one.poll()
        await two.poll()
        # A purge is pending until every filter has applied it, and is told to them when every worker has.
        purging = asyncio.create_task(supervisor.purging.purge(PurgeRequest(tags=("red",)), WHO))
        news = await one.poll(20.0)
        assert news is not None
        assert news.labels == (label(Kind.TAG, b"red"),)
        # Every worker has had it before.
        assert {worker.applied for worker in supervisor._workers} == {supervisor._workers[0].applied} != {0}
        await one.poll()
        # Who has not applied it after a second is named; on a slow machine others may be, too.
        result = await purging
        while result.acknowledged != ("worker-0", "worker-1", one.name):
            assert two.name in result.pending
            await asyncio.sleep(0.01)
            result = await supervisor.purging.result(result.id)
        assert result.pending == (two.name,)
        assert await two.poll() is not None
        late = await supervisor.purging.result(result.id)
        assert late is not None
        assert late.pending == (two.name,)
        await two.poll()
        done = await supervisor.purging.result(result.id)
        assert done is not None
        assert done.pending == ()
        assert done.acknowledged == ("worker-0", "worker-1", one.name, two.name)
        # What a worker has made invalid just before it ends, it may not have told any more.
        os.kill(pids(supervisor)[0], signal.SIGKILL)
        news = await one.poll(20.0)
        assert news is not None
        assert news.labels is None


async def test_what_edits_and_decisions_mean_for_filters(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody but the test decides.
    monkeypatch.setattr(Deciding, "_put_in_force", lambda _self: None)
    bench.write(SET + EXPERIMENT)
    supervisor = await bench.start(1, COMMAND)
    async with fed(supervisor) as (one, two):
        envoy = Envoy(supervisor, one)
        await envoy.miss()
        bench.write(SET.replace("60s", "30s") + EXPERIMENT)
        news = await one.poll(20.0)
        assert news is not None
        assert conditions(supervisor)["Programmed"] is False
        # What was kept under the policy of before goes; the plan need not be another one.
        assert news.labels == labels_of_routes(["r"])
        keep = await envoy.hit()
        assert keep is not None
        assert keep.fresh_until - keep.birth == 30_000
        await two.poll()
        await one.poll()
        await two.poll()
        assert [status.generation for status in supervisor.status().filters] == [2, 2]
        assert conditions(supervisor)["Programmed"] is True

        # A rollback is in force when every filter goes by it.
        before = one.plan
        (experiment,) = supervisor.snapshot.experiments
        back = Overlay("e", experiment.spec_hash, Phase.ROLLED_BACK, (1, 0), 1, False)
        version = supervisor.overlays.apply({"e": back})
        assert not await supervisor.overlays.wait_installed(version, 0.2)
        assert await one.poll(20.0) is not None
        assert one.plan != before
        await one.poll()
        assert not await supervisor.overlays.wait_installed(version, 0.1)
        waiting = asyncio.create_task(supervisor.overlays.wait_installed(version, 20.0))
        await two.poll(20.0)
        await two.poll()
        assert await waiting

        # Without memory for it the filter is told nothing of routes.
        told = one.bodies[-1]
        bench.write(SET + EXPERIMENT + NO_MEMORY)
        news = await one.poll(20.0)
        assert news is not None
        assert news.labels is None
        assert 0 < len(news.plan) < len(told)
