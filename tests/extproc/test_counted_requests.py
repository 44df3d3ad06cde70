"""Requests of an experiment: each is counted once, whatever way it ends, with what its client has felt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from envoy_streams import Stream, body, request, response, trailers

from cache_harness import Rig
from meshcache.engine.exchange import Exchange
from meshcache.experiment.exposure import Exposure
from meshcache.experiment.observation import Observation
from meshcache.experiment.overlay import Overlay, Phase
from meshcache.extproc.conversation import ExternalProcessor
from policy_texts import compiled, experiment, policies

if TYPE_CHECKING:
    from pathlib import Path

    from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

    from meshcache.message import Request

USER = {"x_user_id": "somebody"}
STREAMED = 1


class Recorder:
    """A `Tally` that keeps what it is told."""

    def __init__(self) -> None:
        self.requests: list[Observation] = []
        self.exposures: list[Exposure] = []
        self.charges: list[tuple[int, int, float]] = []

    def count(self, exposure: Exposure, seen: Observation, now: float) -> None:
        assert now > 0
        self.exposures.append(exposure)
        self.requests.append(msgspec.structs.replace(seen))

    def charge(self, exposure: Exposure, requests: int, size: int, cost: float) -> None:
        self.exposures.append(exposure)
        self.charges.append((requests, size, cost))

    def one(self) -> Observation:
        """The only request since the last call."""
        (seen,) = self.requests
        self.requests.clear()
        return seen


class Counted:
    """A processor over a rig whose requests count."""

    def __init__(self, rig: Rig, *, on: str = "", **spec: str) -> None:
        """`on`: the experiment, if another one than `experiment()`."""
        spec = {
            "freshness": "{defaultTtl: 60s, staleIfError: 5m, staleWhileRevalidate: 60s}",
            "cost": "{perOriginRequest: 0.25, currency: USD}",
        } | spec
        snapshot = compiled(policies(more=on or experiment(), **spec))
        (found,) = snapshot.experiments
        overlay = Overlay("e", found.spec_hash, Phase.RUNNING, (1, 0), epoch=1, counting=True)
        self.snapshot = snapshot.with_overlays({"e": overlay})
        self.tally = Recorder()
        self.snapshot.tallies = {"e": self.tally}
        rig.cache.install(self.snapshot)
        self.rig = rig
        self.errors: list[str] = []
        self.processor = ExternalProcessor(
            rig.cache, on_error=lambda stage, _error: self.errors.append(stage), lookup_timeout=5
        )

    async def talk(self, *messages: ProcessingRequest) -> list[ProcessingResponse]:
        stream = Stream(*messages)
        await self.processor.converse(stream)
        await self.rig.settle()
        return stream.replies

    async def seen(self, *messages: ProcessingRequest) -> Observation:
        await self.talk(*messages)
        return self.tally.one()


def of(seen: Observation) -> dict[str, Any]:
    """What differs from nothing at all, but for the time that it took."""
    assert seen.latency > 0
    nothing = msgspec.structs.asdict(Observation())
    return {name: value for name, value in msgspec.structs.asdict(seen).items() if value != nothing[name]} | {
        "latency": 0.0
    }


def shows(**what: Any) -> dict[str, Any]:
    return {"latency": 0.0} | what


FORWARDED = {"origin_requests": 1}


async def test_a_miss_that_is_stored_and_hits(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        seen = await counted.seen(request(**USER), response(), body(b"on"), body(b"e", end=True))
        assert of(seen) == shows(**FORWARDED, origin_bytes=3)
        rig.clock.pass_by(2.5)
        seen = await counted.seen(request(**USER))
        assert of(seen) == shows(tier=1, age=2.5, cost_saved=0.25)
        rig.forget_memory()
        assert of(await counted.seen(request(**USER)))["tier"] == 2
        not_modified = await counted.seen(request(if_none_match="*", **USER))
        assert of(not_modified) == shows(tier=1, age=2.5, cost_saved=0.25)
        exposures = counted.tally.exposures
        assert {(one.experiment, one.arm, one.unit) for one in exposures} == {("e", 0, exposures[0].unit)}
        assert len(exposures[0].unit) == 16


async def test_a_key_counts_where_keys_are_assigned(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig, on=experiment().replace("{header: x-user-id}", "{cacheKey: {}}"))
        assert of(await counted.seen(request(), response(), body(b"one", end=True)))["origin_requests"] == 1
        assert of(await counted.seen(request(**USER)))["tier"] == 1
        await counted.seen(request(path="/b"), response(), body(b"one", end=True))
        first, again, other = (one.unit for one in counted.tally.exposures)
        assert first == again != other


async def test_who_is_forced_or_has_no_unit_does_not_count(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig, config="trust: {canaryHeader: {from: [any]}}")
        for headers in ({}, {"x_canary": "v2"}, USER | {"x_canary": "v2"}):
            replies = await counted.talk(request(path="/b", if_match="*", **headers))
            assert [reply.mode_override.response_header_mode for reply in replies] == [0]
            await counted.talk(request(path="/b", **headers), response(cache_control="no-store"), body(b"x", end=True))
        assert not counted.tally.requests


async def test_an_answer_that_nobody_copies_is_followed_to_its_end(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        no_store = {"cache_control": "no-store"}
        # Its length is announced: the body is not seen, but the end of the stream.
        replies = await counted.talk(request(**USER), response(content_length="700", **no_store))
        assert of(counted.tally.one()) == shows(**FORWARDED, origin_bytes=700)
        mode = replies[-1].mode_override
        assert (mode.response_body_mode, mode.response_trailer_mode) == (0, 1)
        # With trailers.
        seen = await counted.seen(request(**USER), response(content_length="700", **no_store), trailers())
        assert of(seen) == shows(**FORWARDED, origin_bytes=700)
        # It is not: the body is seen, though nobody keeps it.
        messages = request(**USER), response(**no_store), body(b"abc"), body(b"de", end=True)
        replies = await counted.talk(*messages)
        assert replies[1].mode_override.response_body_mode == STREAMED
        assert of(counted.tally.one()) == shows(**FORWARDED, origin_bytes=5)
        for length in ("9" * 13, "1e3", "-1", ""):
            seen = await counted.seen(
                request(**USER), response(content_length=length, **no_store), body(b"a", end=True)
            )
            assert of(seen) == shows(**FORWARDED, origin_bytes=1), length
        # There is none.
        replies = await counted.talk(request(**USER), response(204, end=True, content_length="9", **no_store))
        assert of(counted.tally.one()) == shows(**FORWARDED)
        assert not replies[-1].HasField("mode_override")


@pytest.mark.parametrize(
    "headers", [{"if_match": "*"}, {"if_unmodified_since": "x"}, {"x_http_method_override": "PATCH"}]
)
async def test_what_is_only_passed_on_counts(tmp_path: Path, headers: dict[str, str]) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        replies = await counted.talk(request(**headers, **USER), response(200, content_length="3"))
        assert of(counted.tally.one()) == shows(**FORWARDED, origin_bytes=3)
        names = {header.header.key for header in replies[1].response_headers.response.header_mutation.set_headers}
        assert names <= {"cache-status"}
        # An unsafe request is watched anyway.
        seen = await counted.seen(request("POST", end=False, **USER), response(503, end=True))
        assert of(seen) == shows(**FORWARDED, error=True)


@pytest.mark.parametrize(
    "headers", [{"upgrade": "websocket", "connection": "upgrade"}, {"content_type": "application/grpc"}]
)
async def test_what_is_no_request_with_an_answer_does_not_count(tmp_path: Path, headers: dict[str, str]) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        assert len(await counted.talk(request(**headers, **USER))) == 1
        assert not counted.tally.requests


async def test_errors(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        seen = await counted.seen(request(path="/e", **USER), response(500), body(b"no", end=True))
        assert of(seen) == shows(**FORWARDED, origin_bytes=2, error=True)
        # Envoy's own reply: nothing came from the origin.
        local = response(503, details="no_healthy_upstream", content_length="19")
        assert of(await counted.seen(request(path="/e", **USER), local)) == shows(**FORWARDED, error=True)
        assert of(await counted.seen(request(path="/e", **USER), response(404, end=True))) == shows(**FORWARDED)
        # Whoever wants nothing fetched has asked for the 504.
        assert of(await counted.seen(request(path="/f", cache_control="only-if-cached", **USER))) == shows()


async def test_what_is_stale_and_what_is_confirmed(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig, freshness="{defaultTtl: 60s, staleIfError: 5m}")
        etag = {"etag": '"1"'}
        await counted.seen(request(**USER), response(**etag), body(b"one", end=True))
        rig.clock.pass_by(100)
        # In place of an error.
        seen = await counted.seen(request(**USER), response(503, details="no_healthy_upstream"))
        assert of(seen) == shows(**FORWARDED, stale=True, age=100.0)
        # Once more without asking: now it is a hit.
        seen = await counted.seen(request(**USER))
        assert of(seen) == shows(tier=1, stale=True, age=100.0, cost_saved=0.25)
        rig.clock.pass_by(30)
        seen = await counted.seen(request(**USER), response(304, end=True, **etag))
        assert of(seen) == shows(**FORWARDED)
        rig.clock.pass_by(70)
        # The client takes it stale.
        seen = await counted.seen(request(cache_control="max-stale", **USER))
        assert of(seen) == shows(tier=1, stale=True, age=70.0, cost_saved=0.25)


async def test_a_refresh_counts_for_the_arm_whose_request_has_caused_it(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        rig.origin.says("/a", body=b"fresh", cache_control="max-age=10")
        await counted.seen(request(**USER), response(cache_control="max-age=10"), body(b"old", end=True))
        rig.clock.pass_by(15)
        rig.refresher.may_go.clear()
        await counted.processor.converse(Stream(request(**USER)))
        assert of(counted.tally.one()) == shows(tier=1, stale=True, age=15.0, cost_saved=0.25)
        rig.refresher.may_go.set()
        await rig.settle()
        # Told when it came: the answer was out long before.
        assert sum(requests for requests, _, _ in counted.tally.charges) == 1
        assert sum(size for _, size, _ in counted.tally.charges) == 5
        assert sum(cost for _, _, cost in counted.tally.charges) == 0.25
        assert not counted.tally.requests


async def test_who_waits_for_another_is_no_hit_and_asks_nobody(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig, collapse="{enabled: true}")
        leader = Stream(request(**USER))
        gate = asyncio.Event()
        plain_read = leader.read

        async def read() -> ProcessingRequest | None:
            if leader.read_so_far:
                await gate.wait()
            return await plain_read()

        leader.read = read  # type: ignore[method-assign]
        leader._messages += [response(), body(b"one", end=True)]
        first = asyncio.create_task(counted.processor.converse(leader))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(counted.talk(request(**USER)))
        await asyncio.sleep(0.2)
        gate.set()
        await asyncio.gather(first, second, return_exceptions=True)
        asked, waited = sorted(counted.tally.requests, key=lambda seen: -seen.origin_requests)
        assert of(asked) == shows(**FORWARDED, origin_bytes=3)
        assert of(waited) == shows(cost_saved=0.25)
        assert waited.latency >= 0.04


# -- ends of every kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/kept", "/passed"])
@pytest.mark.parametrize("messages", range(1, 5))
async def test_a_stream_that_ends_anywhere_is_counted_once_and_no_error(
    tmp_path: Path, path: str, messages: int
) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        headers = {} if path == "/kept" else {"cache_control": "no-store"}
        whole = [request(path=path, **USER), response(**headers), body(b"on"), body(b"e")]
        seen = await counted.seen(*whole[:messages])
        came = {"origin_bytes": messages - 1 if messages == 3 else 3} if messages > 2 else {}
        assert of(seen) == shows(**FORWARDED, **came)


async def test_a_client_that_leaves_while_the_cache_looks_is_counted(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        await counted.seen(request(**USER), response(), body(b"one", end=True))
        rig.forget_memory()
        rig.warm.may_go.clear()
        task = asyncio.create_task(counted.processor.converse(Stream(request(**USER))))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        rig.warm.may_go.set()
        seen = counted.tally.one()
        assert of(seen) == shows()
        assert seen.latency >= 0.01


@pytest.mark.parametrize("call", ["start", "on_response", "on_body", "on_end"])
async def test_a_fault_of_the_engine_is_counted_with_what_came_of_the_request(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        plain = getattr(Exchange, call)

        def fail(self: Exchange, *given: Any) -> Any:
            if call == "start":
                plain(self, *given)
            raise RuntimeError

        monkeypatch.setattr(Exchange, call, fail)
        replies = await counted.talk(request(**USER), response(503), body(b"no"), body(b"!", end=True))
        assert len(replies) == 4
        assert of(counted.tally.one()) == shows(**FORWARDED, origin_bytes=3, error=True)
        assert counted.errors


async def test_a_fault_before_the_experiment_is_known_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)

        def fail(_request: Request) -> None:
            raise RuntimeError

        monkeypatch.setattr(rig.cache, "open", fail)
        assert len(await counted.talk(request(**USER))) == 1
        assert not counted.tally.requests


async def test_a_request_counts_where_it_began(tmp_path: Path) -> None:
    # A swap in mid-request: its epoch is the one under which it was assigned.
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        stream = Stream(request(**USER), response(), body(b"one", end=True))
        plain_write = stream.write

        async def write(reply: bytes) -> None:
            await plain_write(reply)
            rig.cache.install(compiled(policies()))

        stream.write = write  # type: ignore[method-assign]
        await counted.processor.converse(stream)
        assert of(counted.tally.one()) == shows(**FORWARDED, origin_bytes=3)
        await rig.settle()


async def test_a_route_without_an_experiment_sees_no_more_than_before(tmp_path: Path) -> None:
    async with Rig(tmp_path, policies()) as rig:
        counted = Counted(rig)
        rig.cache.install(compiled(policies()))
        (reply,) = await counted.talk(request(if_match="*", **USER))
        assert not reply.HasField("mode_override")
        replies = await counted.talk(request(**USER), response(content_length="3", cache_control="no-store"))
        assert not replies[-1].HasField("mode_override")
        assert not counted.tally.requests
