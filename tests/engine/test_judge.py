"""What may be done with a stored response for a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cache_origin import START
from meshcache.engine.judge import Use, judge, may_stand_in, use
from meshcache.engine.records import StoredResponse
from meshcache.message import Headers
from meshcache.rfc.fields import format_http_date
from policy_texts import compiled, policies

if TYPE_CHECKING:
    from meshcache.engine.judge import Judgement
    from meshcache.policy.compiled import Freshness


def freshness(yaml: str = "{}") -> Freshness:
    return compiled(policies(freshness=yaml)).policies["p"].freshness


def stored(
    cache_control: str | None = "max-age=60",
    *,
    status: int = 200,
    request_time: float = START,
    response_time: float = START,
    initial_age: float = 0.0,
    **fields: str,
) -> StoredResponse:
    given = {"date": format_http_date(response_time)} | fields
    if cache_control is not None:
        given["cache-control"] = cache_control
    return StoredResponse(
        key=b"material",
        selecting=(),
        status=status,
        fields=tuple((name.replace("_", "-"), value) for name, value in given.items()),
        request_time=request_time,
        response_time=response_time,
        initial_age=initial_age,
        authorized=False,
        body=b"body",
    )


def judged(cache_control: str | None = "max-age=60", policy: str = "{}", **more: object) -> Judgement:
    return judge(stored(cache_control, **more), freshness(policy))  # type: ignore[arg-type]


def used(judgement: Judgement, after: float, **request: str) -> Use:
    fields = Headers((name.replace("_", "-"), value) for name, value in request.items())
    return use(judgement, fields, START + after)


@pytest.mark.parametrize(("after", "expected"), [(0, Use.FRESH), (59.9, Use.FRESH), (60, Use.VALIDATE)])
def test_fresh_while_its_lifetime_exceeds_its_age(after: float, expected: Use) -> None:
    assert used(judged(), after) is expected


def test_age_counts_what_came_before_it_was_stored() -> None:
    assert used(judged(initial_age=50.0), 9) is Use.FRESH
    assert used(judged(initial_age=50.0), 10) is Use.VALIDATE
    late = judged(request_time=START - 20)
    assert late.age(START) == 20
    old_date = judged(date=format_http_date(START - 30))
    assert old_date.age(START) == 30


def test_age_is_never_negative() -> None:
    assert judged().age(START - 1000) == 0.0
    assert used(judged(), -1000) is Use.FRESH


def test_the_policy_may_give_a_window_to_be_served_stale_in() -> None:
    windowed = judged(policy="{staleWhileRevalidate: 30s}")
    assert used(windowed, 60) is Use.STALE_WHILE_REVALIDATE
    assert used(windowed, 90) is Use.STALE_WHILE_REVALIDATE
    assert used(windowed, 90.1) is Use.VALIDATE


@pytest.mark.parametrize(
    "cache_control",
    ["max-age=60, must-revalidate", "max-age=60, proxy-revalidate", "s-maxage=60", "max-age=60, no-cache"],
)
def test_what_must_be_validated_is_never_served_stale(cache_control: str) -> None:
    judgement = judged(cache_control, "{staleWhileRevalidate: 30s, staleIfError: 5m}")
    assert used(judgement, 61) is Use.VALIDATE
    assert used(judgement, 61, cache_control="max-stale") is Use.VALIDATE
    assert not may_stand_in(judgement, Headers(), START + 61)


def test_the_windows_that_the_origin_sets_come_first() -> None:
    judgement = judged(
        "max-age=60, stale-while-revalidate=5, stale-if-error=7", "{staleWhileRevalidate: 30s, staleIfError: 5m}"
    )
    assert (judgement.swr, judgement.sie) == (5.0, 7.0)


def test_no_cache_is_validated_however_fresh() -> None:
    assert used(judged("max-age=60, no-cache"), 0) is Use.VALIDATE
    assert used(judged("max-age=60, no-cache", "{mode: override, defaultTtl: 60s}"), 0) is Use.VALIDATE


@pytest.mark.parametrize(
    ("asks", "after", "expected"),
    [
        ("no-cache", 0, Use.VALIDATE_BY_REQUEST),
        ("max-age=10", 10, Use.FRESH),
        ("max-age=10", 11, Use.VALIDATE_BY_REQUEST),
        ("max-age=0", 1, Use.VALIDATE_BY_REQUEST),
        ("min-fresh=20", 40, Use.FRESH),
        ("min-fresh=20", 41, Use.VALIDATE_BY_REQUEST),
        ("max-stale=10", 70, Use.ACCEPTED_STALE),
        ("max-stale=10", 71, Use.VALIDATE_BY_REQUEST),
        ("max-stale", 100_000, Use.ACCEPTED_STALE),
        ("max-age=1000", 61, Use.VALIDATE_BY_REQUEST),
        ("something-else", 1, Use.FRESH),
    ],
)
def test_what_the_request_asks_for(asks: str, after: float, expected: Use) -> None:
    assert used(judged(), after, cache_control=asks) is expected


def test_pragma_says_nothing() -> None:
    assert used(judged(), 0, pragma="no-cache") is Use.FRESH


@pytest.mark.parametrize(
    ("asks", "after", "expected"),
    [
        ("max-age=0", 5, Use.FRESH),
        ("max-age=1", 5, Use.FRESH),
        ("no-cache", 5, Use.VALIDATE_BY_REQUEST),
        ("max-age=0, no-cache", 5, Use.VALIDATE_BY_REQUEST),
        ("min-fresh=70", 5, Use.VALIDATE_BY_REQUEST),
        ("max-age=0", 61, Use.VALIDATE_BY_REQUEST),
    ],
)
def test_a_reload_of_what_is_immutable_brings_it_again(asks: str, after: float, expected: Use) -> None:
    assert used(judged("max-age=60, immutable"), after, cache_control=asks) is expected


def test_what_is_immutable_and_always_to_be_validated_is_validated() -> None:
    assert used(judged("max-age=60, immutable, no-cache"), 5) is Use.VALIDATE


@pytest.mark.parametrize(
    ("cache_control", "policy", "last"),
    [
        ("max-age=60", "{}", 120),
        ("max-age=60", "{staleIfUnreachable: 10s}", 70),
        ("max-age=60", "{staleIfUnreachable: 0s}", 60),
        ("max-age=60", "{staleIfUnreachable: 10s, staleIfError: 30s}", 90),
        ("max-age=60, stale-if-error=5", "{}", 65),
        ("max-age=60, stale-if-error=0", "{}", 60),
        ("max-age=60, must-revalidate", "{}", 60),
        ("s-maxage=60", "{}", 60),
        ("max-age=60, no-cache", "{}", 60),
    ],
)
def test_who_is_cut_off_may_serve_stale(cache_control: str, policy: str, last: float) -> None:
    judgement = judged(cache_control, policy)
    for after in (61.0, last, last + 1):
        if after > 60:
            assert may_stand_in(judgement, Headers(), START + after, unreachable=True) is (after <= last)
    assert not may_stand_in(judged(), Headers(), START + 61), "an error of the origin's own is another matter"


def test_who_is_cut_off_does_not_serve_stale_to_who_insists() -> None:
    insists = Headers([("cache-control", "no-cache")])
    assert not may_stand_in(judged(), insists, START + 61, unreachable=True)
    assert may_stand_in(judged(policy="{staleIfError: 5m}"), insists, START + 61, unreachable=True)


def test_a_targeted_field_goes_before_cache_control_and_expires() -> None:
    late = format_http_date(START + 600)
    judgement = judged("max-age=600", cdn_cache_control="max-age=10, stale-while-revalidate=5", expires=late)
    assert (judgement.lifetime, judgement.swr) == (10, 5)
    judgement = judged("max-age=600", "{targets: []}", cdn_cache_control="max-age=10")
    assert judgement.lifetime == 600
    judgement = judged("max-age=600", "{targets: [own-control]}", cdn_cache_control="no-cache", own_control="max-age=5")
    assert (judgement.lifetime, judgement.always_validate) == (5, False)


@pytest.mark.parametrize(
    ("policy", "more", "lifetime"),
    [
        ("{}", {}, 100),
        ("{heuristic: 50%}", {}, 500),
        ("{heuristic: 0}", {}, 0),
        ("{maxTtl: 7s}", {}, 7),
        ("{defaultTtl: 5s}", {}, 5),
        ("{mode: override, defaultTtl: 5s}", {}, 5),
        ("{mode: override, defaultTtl: 5s}", {"status": 404}, 0),
        ("{}", {"cache_control": "max-age=1"}, 1),
        ("{}", {"status": 404}, 60),
        ("{negative: [{status: 404, ttl: 3s}]}", {"status": 404}, 3),
        ("{}", {"status": 201}, 0),
        ("{}", {"status": 201, "cache_control": "public"}, 100),
        ("{}", {"last_modified": format_http_date(START - 100_000_000)}, 86400),
        ("{}", {"last_modified": format_http_date(START + 1000)}, 0),
        ("{}", {"last_modified": "yesterday"}, 0),
        ("{}", {"date": format_http_date(START + 10_000)}, 100),
        ("{}", {"date": format_http_date(START - 500)}, 50),
        ("{}", {"date": "today"}, 100),
    ],
)
def test_a_lifetime_by_last_modified(policy: str, more: dict[str, object], lifetime: float) -> None:
    said: dict[str, object] = {"cache_control": None, "last_modified": format_http_date(START - 1000)} | more
    assert judged(policy=policy, **said).lifetime == lifetime  # type: ignore[arg-type]


@pytest.mark.parametrize("cache_control", ["max-age=60, public", "s-maxage=60", "max-age=60, must-revalidate"])
def test_a_shareable_answer_may_be_given_to_an_authorized_caller(cache_control: str) -> None:
    assert used(judged(cache_control), 1, authorization="Bearer x") is Use.FRESH


def test_another_answer_may_not() -> None:
    judgement = judged("max-age=60", "{staleWhileRevalidate: 30s, staleIfError: 5m}")
    for after in (1, 70):
        assert used(judgement, after, authorization="Bearer x") is Use.VALIDATE_BY_REQUEST
        assert used(judgement, after, authorization="") is Use.VALIDATE_BY_REQUEST
        assert not may_stand_in(judgement, Headers([("authorization", "Bearer x")]), START + after)


def test_stands_in_for_an_error_within_its_window() -> None:
    judgement = judged(policy="{staleIfError: 5m}")
    assert may_stand_in(judgement, Headers(), START + 10)
    assert may_stand_in(judgement, Headers(), START + 360)
    assert not may_stand_in(judgement, Headers(), START + 361)
    assert not may_stand_in(judged(), Headers(), START + 61)


@pytest.mark.parametrize("unreachable", [False, True])
def test_a_client_may_bound_how_stale_what_stands_in_is(unreachable: bool) -> None:
    judgement = judged(policy="{staleIfError: 5m, staleIfUnreachable: 5m}")
    for after, allowed, expected in ((10, 0, True), (61, 0, False), (70, 10, True), (71, 10, False), (361, 900, False)):
        asked = Headers([("cache-control", f"stale-if-error={allowed}")])
        assert may_stand_in(judgement, asked, START + after, unreachable=unreachable) is expected


def test_what_nobody_gives_a_lifetime_is_stale_from_the_start() -> None:
    judgement = judged(None, "{staleWhileRevalidate: 30s}", etag='"x"')
    assert (judgement.lifetime, judgement.swr, judgement.can_validate) == (0.0, 0.0, True)
    assert used(judgement, 0) is Use.VALIDATE
    on_error = judged(None, "{staleIfError: 30s}", etag='"x"')
    assert may_stand_in(on_error, Headers(), START + 30)
    assert not may_stand_in(on_error, Headers(), START + 31)


def test_the_policy_now_in_force_judges() -> None:
    response = stored("max-age=600")
    assert used(judge(response, freshness()), 500) is Use.FRESH
    assert used(judge(response, freshness("{maxTtl: 60s}")), 500) is Use.VALIDATE
    assert used(judge(response, freshness("{mode: override, defaultTtl: 15m}")), 700) is Use.FRESH
    silent = stored(None)
    assert used(judge(silent, freshness("{defaultTtl: 10s}")), 5) is Use.FRESH
    assert used(judge(silent, freshness()), 5) is Use.VALIDATE


durations = st.integers(0, 400)
directives = st.lists(
    st.one_of(
        st.sampled_from(["public", "must-revalidate", "proxy-revalidate", "no-cache", "immutable", "bogus"]),
        st.builds("{}={}".format, st.sampled_from(["max-age", "s-maxage", "stale-while-revalidate"]), durations),
    ),
    max_size=4,
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "cache_control": st.one_of(
            st.sampled_from(["no-cache", "max-stale", "min-fresh=5"]), st.builds("max-stale={}".format, durations)
        ),
        "authorization": st.just("x"),
    },
)


@given(directives, durations, durations, durations, requests)
def test_nothing_is_used_beyond_freshness_and_window(
    said: list[str], default: int, window: int, after: int, request: dict[str, str]
) -> None:
    judgement = judged(", ".join(said), f"{{defaultTtl: {default}s, staleWhileRevalidate: {window}s}}")
    verdict = used(judgement, after, **request)
    past = judgement.age(START + after) - judgement.lifetime
    if verdict is Use.FRESH:
        assert past < 0
    elif verdict is Use.STALE_WHILE_REVALIDATE:
        assert 0 <= past <= judgement.swr
    elif verdict is Use.ACCEPTED_STALE:
        assert "max-stale" in request["cache_control"]
        assert past >= 0
    if verdict in (Use.FRESH, Use.STALE_WHILE_REVALIDATE, Use.ACCEPTED_STALE):
        assert "no-cache" not in said
        assert request.get("cache_control") != "no-cache"
        if "authorization" in request:
            assert judgement.for_authorized
        if past >= 0:
            assert not {"must-revalidate", "proxy-revalidate"} & set(said)


@given(directives, durations, durations)
def test_growing_older_never_makes_it_usable_again(said: list[str], one: int, other: int) -> None:
    assume(one < other)
    judgement = judged(", ".join(said), "{defaultTtl: 60s, staleWhileRevalidate: 30s}")
    order = [Use.FRESH, Use.STALE_WHILE_REVALIDATE, Use.VALIDATE]
    assert order.index(used(judgement, one)) <= order.index(used(judgement, other))


@pytest.mark.parametrize(("purged", "lifetime"), [(30, 30), (90, 60), (0, 0), (-5, 0), (-20, 0)])
def test_what_is_purged_softly_is_stale_from_then_on(purged: float, lifetime: float) -> None:
    assert judged().cut(START + purged, START + 100).lifetime == lifetime


def test_what_was_on_its_way_during_a_soft_purge_was_younger_then() -> None:
    slow = judged(request_time=START - 20)
    assert slow.age(START) == 20
    assert [slow.cut(START + at, START + 100).lifetime for at in (-25, -20, -5, 0, 5)] == [0, 0, 15, 20, 25]
