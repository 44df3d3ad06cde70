"""What the filter counts is what its batches say, and what the sidecar reads in them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from filter_counts import FilterWorker
from filter_rules import needs_rules
from hypothesis import given, settings
from hypothesis import strategies as st

from filter_batches import ARMS, ONE, Hit
from meshcache.experiment.bins import BINS, bin_of, edge_of
from meshcache.wasm.numbers import HIGHEST_US, decode

if TYPE_CHECKING:
    from meshcache.wasm.numbers import Batch

pytestmark = needs_rules

TWO = ONE._replace(experiment="f", epoch=3)
UNITS = [Random(turn).randbytes(16) for turn in range(8)]
HITS = st.builds(
    Hit,
    unit=st.none() | st.sampled_from(UNITS),
    arm=st.integers(0, len(ARMS) - 1),
    stale=st.booleans(),
    latency_us=st.integers(0, 3000) | st.integers(0, 2 * HIGHEST_US),
    age_ms=st.integers(0, 10**9),
    size=st.integers(0, 10**9),
    route=st.sampled_from(("a", "b")),
    counted=st.sampled_from((ONE, TWO)),
    cost=st.sampled_from((0.0, 0.002)),
)


def test_both_sides_have_the_same_bins() -> None:
    worker = FilterWorker(1)
    # Between two edges nothing changes: what is near one is all that could differ.
    near = {int(edge_of(index) * 1e6) + step for index in range(BINS) for step in range(-2, 4)}
    random = Random(4)
    near |= {int(10 ** random.uniform(0, 9.5)) for _ in range(3000)} | {0, 1, 99, 100, 101, HIGHEST_US - 1, HIGHEST_US}
    for latency in near:
        assert worker.bin_of(latency) == bin_of(latency * 1e-6), latency


def sums(found: list[Batch]) -> tuple[Counter[object], Counter[object]]:
    """What batches hold, by route and arm, and by experiment, arm, unit and bin."""
    plain: Counter[object] = Counter()
    counted: Counter[object] = Counter()
    for batch in found:
        for one in batch.plain:
            for name in ("fresh", "stale", "not_modified", "body_bytes", "age_ms", "passed"):
                plain[one.tag.route, one.tag.arm, name] += getattr(one, name)
        for arm in batch.counted:
            for row in arm.rows:
                for name in ("requests", "stale", "latency_us", "latency_square", "age_ms"):
                    counted[arm.tag, arm.arm, row.unit, name] += getattr(row, name)
            for place, count in arm.bins:
                counted[arm.tag, arm.arm, place] += count
    return +plain, +counted


@settings(deadline=None, max_examples=max(10, settings().max_examples * 3 // 10))
@given(st.data())
def test_batches_hold_every_hit_once(data: st.DataObject) -> None:
    worker = FilterWorker((1 << 64) - 2, data.draw(st.integers(0, 1 << 60)))
    now = 0
    hits: list[tuple[Hit, bool]] = []
    passed = 0
    taken: list[bytes] = []
    sent: bytes | None = None
    steps = data.draw(st.lists(st.sampled_from("hhhhhhpntttf"), min_size=1, max_size=60))
    for step in [*steps, "t", "t", "t"]:
        now += data.draw(st.sampled_from((0, 100, 600)))
        match step:
            case "h":
                hit, not_modified = data.draw(HITS), data.draw(st.booleans())
                assert worker.hit(hit, not_modified=not_modified)
                hits.append((hit, not_modified))
            case "p":
                assert worker.passed("")
                passed += 1
            case "n":
                worker.plan(bytes(8))
            case "f":
                worker.failed(now)
            case _:
                now += 600
                body = worker.tick(now + 20_000 * (step == "t" and sent is not None))
                if sent is not None and body is not None:
                    assert body == sent
                sent = body or sent
                if sent is not None and data.draw(st.booleans()):
                    worker.taken(sent)
                    taken.append(sent)
                    sent = None
                now += 20_000
    for _ in range(2):
        now += 60_000
        body = worker.tick(now)
        if body is not None:
            assert sent is None or sent == body
            worker.taken(body)
            taken.append(body)
            sent = None
    assert worker.tick(now + 60_000) is None

    found = [decode(body) for body in taken]
    assert [batch.sequence for batch in found] == list(range(1, len(found) + 1))
    assert {batch.worker for batch in found} <= {(1 << 64) - 2}
    plain: Counter[object] = Counter()
    counted: Counter[object] = Counter()
    if passed:
        plain["", "", "passed"] = passed
    for hit, not_modified in hits:
        place = hit.route, hit.counted.arms[hit.arm] if hit.unit else ""
        plain[*place, "stale" if hit.stale else "fresh"] += 1
        plain[*place, "not_modified"] += not_modified
        plain[*place, "body_bytes"] += hit.size
        plain[*place, "age_ms"] += hit.age_ms
        if hit.unit:
            tag = hit.counted, round(hit.cost * 1e6)
            latency = min(hit.latency_us, HIGHEST_US)
            row = (tag, hit.arm, hit.unit)
            counted[*row, "requests"] += 1
            counted[*row, "stale"] += hit.stale
            counted[*row, "latency_us"] += latency
            counted[*row, "latency_square"] += latency**2 // 10**6
            counted[*row, "age_ms"] += hit.age_ms
            counted[tag, hit.arm, bin_of(latency * 1e-6)] += 1
    assert sums(found) == (+plain, +counted)


def test_a_full_table_hands_on_and_its_batch_is_read() -> None:
    worker = FilterWorker(1)
    counted = worker.fill(Hit(), 100_000)
    assert counted == 16_384
    body = worker.tick(1000)
    assert body is not None
    found = decode(body)
    rows = [row for arm in found.counted for row in arm.rows]
    assert len({row.unit for row in rows}) == len(rows) == counted
    assert sum(one.fresh + one.stale for one in found.plain) == counted
    # While that one is under way, the next one gathers.
    assert worker.hit(Hit(UNITS[0]))
    worker.taken(body)
    after = worker.tick(2000)
    assert after is not None
    assert decode(after).sequence == 2
