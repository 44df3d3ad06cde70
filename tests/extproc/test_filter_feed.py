"""The feed as filters ask it: over a unix socket, with a real client."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
import structlog.testing
from filters import filtering

from meshcache.engine.purge_state import generation as generation_of
from meshcache.engine.purges import PurgeKind, Rule
from meshcache.wasm.labels import Kind, label, labels_of_routes
from meshcache.wasm.numbers import MOST_BATCH_BYTES
from policy_texts import compiled, policies

if TYPE_CHECKING:
    from pathlib import Path

    from filters import Filtering, PlayedFilter

ONE = policies(freshness="{defaultTtl: 60s}")
OTHER = policies(freshness="{defaultTtl: 30s}")


def tag(value: str) -> Rule:
    return Rule(PurgeKind.TAG, value, False, 0.0, value)


def label_of(value: str) -> int:
    return label(Kind.TAG, value.encode())


async def begun(made: Filtering) -> tuple[PlayedFilter, PlayedFilter]:
    """Both filters with the first plan."""
    one, two = made.filters
    async with asyncio.timeout(20):
        while (await one.ask()).status_code != 200:  # noqa: ASYNC110  nothing to await from outside
            await asyncio.sleep(0.01)
    for each in (one, two):
        news = await each.poll()
        assert news is not None
        assert news.labels is None
        assert news.plan
        assert await each.poll() is None
    return one, two


async def test_the_first_poll_gets_the_plan_and_drops_everything(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, two = await begun(made)
        assert one.plan == two.plan != ""
        assert one.after == two.after != 0
        # Before a filter has asked a worker need not mind plans.
        first, *_, told = made.worker.told
        assert first.plans == ()
        assert [plan.id.hex() for plan in told.plans] == [one.plan]
        assert told.secret in one.bodies[0]
        assert made.metrics.snapshot().counters["filter_polls_total"][("news",)] >= 2


async def test_the_log_tells_of_plans_where_there_are_filters(tmp_path: Path) -> None:
    def told(entries: list[Any]) -> list[str]:
        return [entry["plan"] for entry in entries if entry["event"] == "plan for the filters in Envoy"]

    with structlog.testing.capture_logs() as entries:
        async with filtering(compiled(ONE), tmp_path) as made:
            await asyncio.sleep(0.1)
            assert told(entries) == []
            one, _ = await begun(made)
            assert told(entries) == [one.plan]
            made.snapshot = compiled(OTHER)
            made.hub.changed()
            assert await one.poll(20.0) is not None
            assert told(entries)[1:] == [one.plan]


@pytest.mark.parametrize("budget", ["", "0", "8Mi", "9Mi"])
async def test_the_status_says_when_nothing_is_kept(tmp_path: Path, budget: str) -> None:
    config = f"budgets: {{filter: {budget}}}" if budget else ""
    async with filtering(compiled(policies(config=config)), tmp_path) as made:
        await begun(made)
        assert [each.keeps for each in made.hub.status] == [budget in ("", "9Mi")] * 2


async def test_a_poll_waits_for_news_and_gets_them_at_once(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, two = await begun(made)
        began = time.monotonic()
        waiting = asyncio.create_task(one.poll(20.0))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        made.hub.invalid([b"r" * 16])
        news = await waiting
        assert time.monotonic() - began < 15.0
        assert news is not None
        assert news.labels == (label(Kind.RESOURCE, b"r" * 16),)
        assert news.plan == b""
        made.hub.invalid([b"s" * 16])
        made.hub.invalid(None)
        # The other one gets all of it together.
        assert [(await two.poll() or pytest.fail("no news")).labels] == [None]


async def test_without_news_it_is_not_modified_when_the_time_is_over(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, _ = await begun(made)
        began = time.monotonic()
        answer = await one.ask(0.2)
        assert answer.status_code == 304
        assert answer.headers["etag"] == f'"{one.plan}"'
        assert 0.15 < time.monotonic() - began < 15.0


async def test_a_new_plan_comes_when_the_workers_have_its_policies(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, two = await begun(made)
        first = one.plan
        made.snapshot = compiled(OTHER, generation=2)
        made.hub.changed()
        async with asyncio.timeout(20):
            while len(made.worker.told[-1].plans) < 2:  # noqa: ASYNC110  nothing to await from outside
                await asyncio.sleep(0.01)
        # The workers are told of the plan, and filters are not, as long as a worker answers by the old policies.
        assert [plan.generation for plan in made.worker.told[-1].plans] == [1, 2]
        assert await one.poll(0.1) is None
        made.worker.generation = 2
        news = await one.poll(20.0)
        assert news is not None
        assert news.plan
        assert one.plan != first
        # What was kept by the old policies goes, where they say otherwise now.
        assert news.labels == labels_of_routes(["all"])
        assert made.counted("filter_drops_total", "policies", "labels") == 1
        # Acknowledged with the next poll.
        assert [status.generation for status in made.hub.status] == [1, 1]
        await one.poll()
        assert [status.generation for status in made.hub.status] == [2, 1]
        await two.poll()
        await two.poll()
        assert [status.generation for status in made.hub.status] == [2, 2]


async def test_a_filter_goes_by_a_set_when_it_has_dropped_what_that_wants(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, two = await begun(made)
        plan, body = one.plan, one.bodies[0]
        made.compiled = lambda *_: (plan, body)
        made.snapshot, made.version = compiled(OTHER, generation=2), 1
        made.worker.generation, made.worker.overlaid = 2, 1
        made.hub.changed()
        # To the plan the edit is none, but what was kept by the older policies goes.
        news = await one.poll(20.0)
        assert news is not None
        assert (news.labels, news.plan) == (labels_of_routes(["all"]), b"")
        assert [status.generation for status in made.hub.status] == [1, 1]
        await one.poll()
        assert [status.generation for status in made.hub.status] == [2, 1]
        assert made.hub.overlaid == 0
        await two.poll()
        await two.poll()
        assert [status.generation for status in made.hub.status] == [2, 2]
        assert made.hub.overlaid == 1


async def test_an_edit_that_changes_nothing_for_a_route_drops_nothing(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, _ = await begun(made)
        made.snapshot = compiled(ONE + "\n---\n", generation=2)
        made.worker.generation = 2
        made.hub.changed()
        news = await one.poll(20.0)
        assert news is not None
        assert news.labels == ()


async def test_filters_count_for_what_is_decided_about_experiments(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        assert made.hub.overlaid is None
        one, two = await begun(made)
        assert made.hub.overlaid == 0
        made.version = made.worker.overlaid = 1
        made.hub.changed()
        await one.poll(20.0)
        await one.poll()
        assert made.hub.overlaid == 0
        await two.poll()
        before = made.progress
        await two.poll()
        assert made.progress > before
        assert made.hub.overlaid == 1
        made.version = 2
        made.hub.changed()
        # One that is gone is not waited for beyond its lease.
        made.now += 10.0
        assert made.hub.overlaid is None


async def test_policies_that_make_no_plan_silence_the_filters(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, _ = await begun(made)

        def fails(*_: Any) -> tuple[str, bytes]:
            raise ValueError("for the test")

        working, made.compiled = made.compiled, fails
        waiting = asyncio.create_task(one.ask(20.0))
        await asyncio.sleep(0.05)
        made.hub.changed()
        assert (await waiting).status_code == 503
        made.compiled = working
        made.hub.changed()
        assert (await one.ask(1.0)).status_code in (200, 304, 503)
        async with asyncio.timeout(20):
            while (await one.ask()).status_code not in (200, 304):  # noqa: ASYNC110  nothing to await from outside
                await asyncio.sleep(0.01)


async def test_who_comes_from_another_supervisor_gets_the_plan_though_its_id_is_the_same(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, _ = await begun(made)
        # The secret is another one.
        one.after = 0x8000000100000001
        news = await one.poll()
        assert news is not None
        assert news.labels is None
        assert news.plan == one.bodies[0]


async def test_a_purge_is_told_to_filters_after_the_workers_have_applied_it(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, two = await begun(made)
        first, second = generation_of(7, 1), generation_of(7, 2)
        made.worker.applied = first
        made.hub.announce([tag("a")], second)
        assert await one.poll() is None
        assert made.hub.standing(second) == ([], [one.name, two.name])
        assert made.hub.pending == [one.name, two.name]
        made.worker.applied = second
        made.hub.applied()
        news = await one.poll()
        assert news is not None
        assert news.labels == (label_of("a"),)
        # It has been handed out, and not acknowledged yet.
        assert made.hub.standing(second) == ([], [one.name, two.name])
        await one.poll()
        assert made.hub.standing(second) == ([one.name], [two.name])
        assert made.hub.standing(first) == ([one.name], [two.name])
        # The other one vanishes: surely over is its lease ten seconds after its last poll.
        made.now += 9.9
        await one.poll()
        assert made.hub.standing(second) == ([one.name], [two.name])
        made.now += 0.2
        assert made.hub.standing(second) == ([one.name], [])


async def test_a_worker_that_is_gone_holds_no_purge_back(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, _ = await begun(made)
        made.worker.applied = generation_of(7, 1)
        made.hub.announce(None, generation_of(7, 2))
        made.worker.ready = False
        made.hub.applied()
        news = await one.poll()
        assert news is not None
        assert news.labels is None


async def test_one_that_comes_back_late_drops_what_it_has_missed(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, _ = await begun(made)
        made.worker.applied = generation_of(7, 5)
        for number in range(5):
            made.hub.announce([tag(f"t{number}")], generation_of(7, number + 1))
        news = await one.poll()
        assert news is not None
        assert set(news.labels or ()) == {label_of(f"t{number}") for number in range(5)}


async def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        wrong = (
            {"format": "2"},
            {"format": ""},
            {"worker": "x" * 16},
            {"worker": "a" * 15},
            {"worker": ""},
            {"after": "12"},
            {"after": "-" * 16},
            {"wait": "nan"},
            {"wait": "-1"},
            {"wait": "1e9"},
        )
        for query in wrong:
            assert (await made.filters[0].ask(**query)).status_code == 400
        assert made.hub.status == ()
        assert made.counted("filter_polls_total", "refused") == len(wrong)


async def test_figures_that_make_no_sense_are_nothing(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        await begun(made)
        await made.filters[0].ask(entries="9" * 40, bytes="-3", version="<script>")
        [one, _] = made.hub.status
        assert (one.entries, one.bytes, one.version) == (0, 0, "")
        await made.filters[0].ask(entries="12", bytes="3400", version="1.2.0")
        made.hub.sample()
        gauges = made.metrics.snapshot().gauges
        assert (gauges["filter_entries"][()], gauges["filter_bytes"][()]) == (12, 3400)
        assert gauges["filter_workers"][()] == 2
        assert made.hub.status[0].version == "1.2.0"


async def test_fills_and_evictions_are_counted_once(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, other = made.filters

        async def told(filter_: PlayedFilter, fills: int, evictions: int) -> tuple[float, float]:
            await filter_.ask(fills=str(fills), evictions=str(evictions))
            return made.counted("filter_fills_total"), made.counted("filter_evictions_total")

        # What it had counted before it was first heard of is in the metrics of the sidecar before.
        assert await told(one, 1000, 500) == (0, 0)
        assert await told(one, 1007, 502) == (7, 2)
        assert await told(one, 1007, 502) == (7, 2)
        assert await told(other, 0, 0) == (7, 2)
        assert await told(other, 3, 1) == (10, 3)
        assert await told(one, 1008, 502) == (11, 3)
        assert await told(one, 0, 0) == (11, 3)


async def test_counts_go_to_who_takes_them(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, _ = made.filters
        assert (await one.send(b"anything")).status_code == 204
        taken: list[bytes] = []

        async def take(body: bytes) -> bool:
            taken.append(body)
            if body == b"bad":
                raise ValueError(body)
            return body == b"good"

        made.hub.take_numbers = take
        assert (await one.send(b"good")).status_code == 204
        assert (await one.send(b"bad")).status_code == 400
        assert (await one.send(b"later")).status_code == 503
        assert taken == [b"good", b"bad", b"later"]
        assert (await one.send(bytes(MOST_BATCH_BYTES + 1))).status_code == 413


async def test_at_its_end_filters_drop_everything_and_get_no_more(tmp_path: Path) -> None:
    async with filtering(compiled(ONE), tmp_path) as made:
        one, two = await begun(made)
        waiting = asyncio.create_task(one.poll(20.0))
        await asyncio.sleep(0.05)
        made.hub.close()
        for news in (await waiting, await two.poll()):
            assert news is not None
            assert news.labels is None
            assert news.plan == b""
        assert made.worker.told[-1].plans == ()
        assert (await one.ask()).status_code == 503
        assert (await two.ask()).status_code == 503
        assert made.worker.told[-1].plans == ()
