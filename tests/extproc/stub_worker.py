"""A worker process whose cache is replaced by a few lines, to see what the supervisor and the edge do with it."""

from __future__ import annotations

import asyncio
import sys
import types

from meshcache.policy.errors import PolicyError, PolicyErrors


class StubService:
    def __init__(self, options, metrics):
        self._options = options
        self._metrics = metrics

    async def converse(self, stream):
        self._metrics.inc("store_total", ("stored",))
        while (message := await stream.read()) is not None:
            await stream.write(message.SerializeToString())

    def failed(self, error):
        raise error

    def install(self, documents, generation):
        if any("refused by workers" in text for _, text in documents.files):
            raise PolicyErrors([PolicyError("a.yaml", 1, 2, "spec", "refused by workers")])
        self._metrics.set("hot_entries", (), generation)

    def overlay(self, overlays):
        self._metrics.set("hot_entries", (), len(overlays.overlays))

    def admit(self, plans):
        self._metrics.set("filter_plan_bytes", (), len(plans.plans))

    async def invalidated(self):
        await asyncio.Event().wait()

    async def apply_purges(self):
        return 0

    async def count_purged(self):
        return None

    def sample(self):
        self._metrics.set("hot_bytes", (), 100)

    def retire(self):
        pass

    async def drain(self, _timeout):
        self._metrics.inc("refreshes_total", ("drained", "stale"))

    async def close(self):
        pass


async def build(options, metrics, log):
    return StubService(options, metrics)


stub = types.ModuleType("meshcache.extproc.assembly")
stub.build = build
sys.modules["meshcache.extproc.assembly"] = stub

from meshcache.extproc import worker  # noqa: E402

if __name__ == "__main__":
    sys.exit(worker.main())
