"""The copy of a response while it streams, and what memory it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_origin import START
from meshcache.decisions import NoStoreReason
from meshcache.engine.epochs import Epochs
from meshcache.engine.key import cache_key
from meshcache.engine.storing.arrival import Arrival
from meshcache.engine.storing.fill import CopyBudget, Fill
from meshcache.engine.storing.rules import unstorable
from meshcache.engine.target import Target
from meshcache.message import Headers, Request, Response
from policy_texts import compiled, policies

SNAPSHOT = compiled(
    policies(
        freshness="{defaultTtl: 60s, negative: [{status: 404, ttl: 5s}]}",
        tiers="{hot: {maxObjectBytes: 10}, warm: {maxObjectBytes: 10}, cold: {maxObjectBytes: 100}}",
    )
)


def target(method: str = "GET", **headers: str) -> Target:
    request = Request(method, "example.com", "/a", fields(headers))
    selection = SNAPSHOT.select(request)
    assert selection.policy is not None
    key = cache_key(request, selection.policy.key, namespace=selection.namespace, revision="")
    return Target(request, START, selection, selection.policy, key, "", Epochs(b"e" * 8), None)


def fields(headers: dict[str, str]) -> Headers:
    return Headers((name.replace("_", "-"), value) for name, value in headers.items())


def fill(budget: CopyBudget | None = None, **headers: str) -> Fill:
    return Fill(Arrival(target(), Response(200, fields(headers)), START + 1), budget or CopyBudget(1000))


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(0, 120))
def test_the_budget_is_given_back_whatever_happens(chunks: list[bytes], limit: int) -> None:
    budget = CopyBudget(limit)
    copy = fill(budget)
    whole = b""
    for chunk in chunks:
        if not copy.add(chunk):
            over = len(whole) + len(chunk)
            assert copy.refused is (NoStoreReason.TOO_LARGE if over > 100 else NoStoreReason.NO_MEMORY)
            assert over > min(limit, 100)
            copy.release()
            break
        whole += chunk
        assert budget.used == len(whole) <= limit
    else:
        record = copy.finish()
        assert record is not None
        assert record.body == whole
    assert budget.used == 0


def test_copies_share_one_budget() -> None:
    budget = CopyBudget(10)
    one, other = fill(budget), fill(budget)
    assert one.add(b"123456")
    assert not other.add(b"12345")
    assert other.refused is NoStoreReason.NO_MEMORY
    other.release()
    one.release()
    assert budget.take(10)


@pytest.mark.parametrize(("declared", "kept"), [("4", True), ("004", True), ("5", False), ("3", False), ("x", True)])
def test_a_body_of_another_length_than_announced_is_not_kept(declared: str, kept: bool) -> None:
    copy = fill(content_length=declared)
    assert copy.add(b"body")
    record = copy.finish()
    assert (record is not None) == kept
    assert copy.refused is (None if kept else NoStoreReason.TRUNCATED)


def test_a_body_announced_too_large_is_not_begun() -> None:
    assert fill(content_length="100").fits()
    assert not fill(content_length="101").fits()
    assert fill().fits()
    assert not fill(content_length="9" * 5000).fits()
    assert fill(content_length="0" * 5000 + "4").fits()


def test_what_is_kept_of_a_response() -> None:
    arrival = Arrival(
        target(authorization="x", accept="text/html"),
        Response(
            200,
            Headers(
                [
                    ("content-length", "2"),
                    ("set-cookie", "sid=secret"),
                    ("set-cookie", "other=1"),
                    ("link", "<a>"),
                    ("link", "<b>"),
                    ("vary", "Accept, X-B"),
                    ("age", "7"),
                    ("cache-status", "inner; hit"),
                    ("connection", "close, x-hop"),
                    ("x-hop", "1"),
                    ("x-meshcache-plan", "internal"),
                    ("x-envoy-upstream-service-time", "3"),
                ]
            ),
        ),
        START + 1,
    )
    copy = Fill(arrival, CopyBudget(1000))
    copy.add(b"o")
    copy.add(b"k")
    record = copy.finish()
    assert record is not None
    assert record.fields == (
        ("link", "<a>"),
        ("link", "<b>"),
        ("vary", "Accept, X-B"),
        ("date", "Tue, 14 Nov 2023 22:13:21 GMT"),
    )
    assert record.selecting == (("accept", "text/html"), ("x-b", None))
    assert (record.status, record.body, record.authorized, record.initial_age) == (200, b"ok", True, 7.0)
    assert (record.request_time, record.response_time) == (START, START + 1)


@pytest.mark.parametrize(
    ("asked", "answer", "reason"),
    [
        (target(), Response(200), None),
        (target(), Response(404), None),
        (target(), Response(410), NoStoreReason.NO_FRESHNESS),
        (target(), Response(503), NoStoreReason.STATUS),
        (target(), Response(200, from_origin=False), NoStoreReason.LOCAL_REPLY),
        (target("HEAD"), Response(200), NoStoreReason.METHOD),
        (target(cache_control="no-store"), Response(200), NoStoreReason.REQUEST_NO_STORE),
        (target(), Response(200, fields({"cache_control": "no-store"})), NoStoreReason.RESPONSE_NO_STORE),
        (target(), Response(200, fields({"cache_control": "private"})), NoStoreReason.PRIVATE),
        (target(), Response(200, fields({"vary": "*"})), NoStoreReason.VARY_STAR),
        (target(authorization="x"), Response(200), NoStoreReason.AUTHORIZATION),
        (target(authorization="x"), Response(200, fields({"cache_control": "s-maxage=5"})), None),
    ],
)
def test_what_may_be_stored(asked: Target, answer: Response, reason: NoStoreReason | None) -> None:
    assert unstorable(Arrival(asked, answer, START + 1)) is reason
