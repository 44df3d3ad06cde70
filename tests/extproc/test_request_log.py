"""The line of each request: what it says, and what it never says."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from envoy_streams import Stream, body, request, response
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_harness import Rig
from meshcache.extproc.request_log import LONGEST, LoggedMeter, LoggingProcessor, _shown
from meshcache.observe import logs
from meshcache.observe.metrics import Metrics
from policy_texts import policies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

PLAIN = policies(freshness="{defaultTtl: 60s, staleIfError: 5m}")


class Logged:
    """A processor over a rig, and the lines it wrote."""

    def __init__(self, rig: Rig, stream: io.StringIO) -> None:
        self._rig = rig
        self._stream = stream
        self.metrics = Metrics()
        rig.cache.meter = LoggedMeter(self.metrics)
        self.processor = LoggingProcessor(
            rig.cache, on_error=lambda _stage, _error: None, lookup_timeout=5, log=logs.get_logger(worker=0)
        )

    async def line(self, *messages: ProcessingRequest) -> dict[str, Any]:
        """Lead one stream to its end; the one line that was written for it."""
        self._stream.seek(0)
        self._stream.truncate()
        await self.processor.converse(Stream(*messages))
        await self._rig.settle()
        (line,) = self._stream.getvalue().splitlines()
        return json.loads(line)  # type: ignore[no-any-return]


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    yield stream
    logs.configure()


async def test_a_line_for_each_way_a_request_can_go(tmp_path: Path, written: io.StringIO) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        logged = Logged(rig, written)
        miss = await logged.line(request(path="/a?token=hunter2"), response(), body(b"one", end=True))
        assert miss.pop("seconds") > 0
        assert miss.pop("timestamp")
        assert miss == {
            "message": "request",
            "level": "info",
            "worker": 0,
            "method": "GET",
            "path": "/a",
            "status": 200,
            "decision": "miss",
            "reason": "uri-miss",
            "tier": "",
            "route": "all",
            "arm": "",
        }
        hit = await logged.line(request(path="/a?token=hunter2"))
        assert (hit["decision"], hit["tier"], hit["status"], hit["reason"]) == ("hit", "hot", 200, "")
        not_modified = await logged.line(request(path="/a?token=hunter2", if_none_match="*"))
        assert (not_modified["decision"], not_modified["status"]) == ("hit", 304)
        bypass = await logged.line(request("PATCH", end=False), response(201), body(b"x", end=True))
        assert (bypass["decision"], bypass["reason"], bypass["status"]) == ("bypass", "method", 201)
        unseen = await logged.line(request(if_match="*"))
        assert (unseen["decision"], unseen["reason"], unseen["status"]) == ("bypass", "precondition", None)
        rig.clock.pass_by(100)
        error = await logged.line(request(path="/a?token=hunter2"), response(503, details="no_healthy_upstream"))
        assert (error["decision"], error["status"]) == ("stale-if-error", 200)
        counted = logged.metrics.snapshot().counters["requests_total"]
        assert sum(counted.values()) == 6
        assert {labels[0] for labels in counted} == {"miss", "hit", "bypass", "stale-if-error"}


async def test_what_is_secret_is_not_in_it(tmp_path: Path, written: io.StringIO) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        secrets = {"authorization": "Bearer hunter2", "cookie": "id=hunter2", "x_api_key": "hunter2"}
        messages = request(path="/a?key=hunter2", **secrets), response(set_cookie="hunter2"), body(b"hunter2", end=True)
        await Logged(rig, written).line(*messages)
        assert "hunter2" not in written.getvalue()


async def test_a_client_that_leaves_and_a_fault_are_lines_too(
    tmp_path: Path, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        logged = Logged(rig, written)
        left = await logged.line(request())
        assert (left["decision"], left["status"]) == ("miss", None)

        def fail(_request: object) -> None:
            raise RuntimeError

        monkeypatch.setattr(rig.cache, "open", fail)
        fault = await logged.line(request())
        assert (fault["decision"], fault["path"]) == (None, "/a")


async def test_a_reset_while_the_cache_looks_is_a_line_too(tmp_path: Path, written: io.StringIO) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        logged = Logged(rig, written)
        await logged.line(request(), response(), body(b"one", end=True))
        rig.forget_memory()
        rig.warm.may_go.clear()
        written.seek(0)
        written.truncate()
        looking = asyncio.create_task(logged.processor.converse(Stream(request())))
        await asyncio.sleep(0.01)
        looking.cancel()
        await asyncio.wait([looking])
        assert looking.cancelled()
        rig.warm.may_go.set()
        (line,) = written.getvalue().splitlines()
        assert (json.loads(line)["path"], json.loads(line)["decision"]) == ("/a", None)


async def test_streams_at_the_same_time_do_not_mix(tmp_path: Path, written: io.StringIO) -> None:
    async with Rig(tmp_path, PLAIN) as rig:
        logged = Logged(rig, written)
        await logged.line(request(path="/kept"), response(), body(b"one", end=True))
        rig.forget_memory()
        rig.warm.may_go.clear()
        waiting = asyncio.create_task(logged.processor.converse(Stream(request(path="/kept"))))
        await asyncio.sleep(0.01)
        other = await asyncio.create_task(logged.line(request("PATCH", path="/other"), response(404)))
        assert (other["path"], other["decision"], other["status"]) == ("/other", "bypass", 404)
        rig.warm.may_go.set()
        await waiting
        last = json.loads(written.getvalue().splitlines()[-1])
        assert (last["path"], last["decision"], last["tier"], last["status"]) == ("/kept", "hit", "warm", 200)


@given(st.text())
@settings(max_examples=100)
def test_what_a_client_sent_is_printable_and_bounded(text: str) -> None:
    shown = _shown(text)
    assert shown.isascii()
    assert shown.isprintable()
    assert " " not in shown
    assert len(shown) <= 12 * LONGEST
