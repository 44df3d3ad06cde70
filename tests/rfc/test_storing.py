import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.decisions import NoStoreReason
from meshcache.message import Headers
from meshcache.rfc.cache_control import CacheControl, request_cache_control
from meshcache.rfc.storing import (
    HEURISTICALLY_CACHEABLE,
    may_use_heuristics,
    no_store_reason,
    shareable_despite_authorization,
    storable_fields,
)

Fields = list[tuple[str, str]]


def reason(
    cc: str | None = "max-age=60",
    *,
    status: int = 200,
    method: str = "GET",
    request: Fields | None = None,
    response: Fields | None = None,
    lifetime: bool | None = None,
) -> NoStoreReason | None:
    request_headers = Headers(request or [])
    response_headers = Headers([*(response or []), *([] if cc is None else [("cache-control", cc)])])
    response_cc = CacheControl.parse(response_headers.get("cache-control"))
    if lifetime is None:
        lifetime = response_cc.max_age is not None or response_cc.s_maxage is not None
    return no_store_reason(
        method=method,
        request_headers=request_headers,
        request_cc=request_cache_control(request_headers),
        status=status,
        response_headers=response_headers,
        response_cc=response_cc,
        has_lifetime=lifetime,
    )


def test_a_plain_fresh_response_is_stored() -> None:
    assert reason() is None
    assert reason("s-maxage=60") is None


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "OPTIONS", "get", "", "FOO"])
def test_only_get_is_stored(method: str) -> None:
    assert reason(method=method) is NoStoreReason.METHOD


@pytest.mark.parametrize("status", [0, 100, 101, 103, 199, 304, 600, 999])
def test_what_is_no_final_response_is_not_stored(status: int) -> None:
    assert reason(status=status) is NoStoreReason.STATUS
    assert reason(status=status, lifetime=True) is NoStoreReason.STATUS


@pytest.mark.parametrize("cc", ["max-age=60", "public, s-maxage=60", "must-understand, max-age=60"])
@pytest.mark.parametrize("status", [407, 408, 413, 417, 421, 425, 428, 429, 431, 511])
def test_what_is_said_to_one_client_alone_is_not_stored(status: int, cc: str) -> None:
    assert reason(cc, status=status) is NoStoreReason.STATUS
    assert reason(None, status=status, lifetime=True) is NoStoreReason.STATUS


@pytest.mark.parametrize("status", [200, 204, 299, 302, 307, 400, 403, 404, 410, 499, 500, 503, 599])
def test_any_final_status_is_stored_with_explicit_freshness(status: int) -> None:
    assert reason(status=status) is None


def test_partial_content_is_never_stored_as_a_whole() -> None:
    assert reason(status=206) is NoStoreReason.PARTIAL
    assert reason(status=206, request=[("range", "bytes=0-1")]) is NoStoreReason.PARTIAL


@pytest.mark.parametrize("status", [400, 403, 412, 416, 500])
def test_what_only_a_range_request_may_have_got_is_not_stored(status: int) -> None:
    assert reason(status=status, request=[("range", "bytes=9-")]) is NoStoreReason.PARTIAL


@pytest.mark.parametrize("status", [200, 301, 404])
def test_a_whole_answer_to_a_range_request_is_one_like_others(status: int) -> None:
    assert reason(status=status, request=[("range", "bytes=0-1")]) is None
    assert reason(status=status, response=[("content-range", "bytes 0-1/9")]) is None


@pytest.mark.parametrize("field", [("x y", "1"), ("", "1"), ("x", "a\r\nset-cookie: b"), ("x", "a\x00")])
def test_malformed_fields_are_not_stored(field: tuple[str, str]) -> None:
    assert reason(response=[field]) is NoStoreReason.BAD_HEADERS


def test_no_store() -> None:
    assert reason("max-age=60, No-Store") is NoStoreReason.RESPONSE_NO_STORE
    assert reason("no-store", lifetime=True) is NoStoreReason.RESPONSE_NO_STORE
    assert reason(request=[("cache-control", "no-store")]) is NoStoreReason.REQUEST_NO_STORE
    assert reason(request=[("cache-control", "no-cache")]) is None


def test_must_understand_overrides_no_store_where_the_status_is_understood() -> None:
    assert reason("max-age=60, no-store, must-understand") is None
    assert reason("max-age=60, must-understand", status=599) is NoStoreReason.STATUS
    assert reason("max-age=60, no-store, must-understand", status=599) is NoStoreReason.STATUS
    assert reason("max-age=60, no-store, must-understand=x") is NoStoreReason.RESPONSE_NO_STORE


@pytest.mark.parametrize(
    "cc", ["private", "private, max-age=60, public", 'private="x y", max-age=60', "max-age=60,PRIVATE"]
)
def test_private_responses_are_not_stored(cc: str) -> None:
    assert reason(cc) is NoStoreReason.PRIVATE
    assert reason(cc, lifetime=True) is NoStoreReason.PRIVATE


def test_a_response_whose_private_fields_are_named_is_stored_without_them() -> None:
    assert reason('private="x-user", max-age=60') is None
    headers = Headers([("cache-control", 'private="X-User"'), ("x-user", "bob"), ("x-b", "1")])
    assert storable_fields(headers, CacheControl.parse('private="X-User"')) == (headers.fields[0], ("x-b", "1"))


@pytest.mark.parametrize(
    ("cc", "shared"),
    [
        ("max-age=60", False),
        ("max-age=60, public", True),
        ("max-age=60, must-revalidate", True),
        ("s-maxage=60", True),
        ("s-maxage=0", True),
        ("s-maxage=x", False),
        ("max-age=60, proxy-revalidate", False),
        ("max-age=60, public=x", False),
        ("max-age=60, immutable", False),
    ],
)
def test_answers_to_authorized_requests(cc: str, shared: bool) -> None:
    assert shareable_despite_authorization(CacheControl.parse(cc)) is shared
    expected = None if shared else NoStoreReason.AUTHORIZATION
    assert reason(cc, request=[("authorization", "Bearer x")]) is expected
    assert reason(cc, request=[("authorization", "")], lifetime=True) is expected


def test_vary_star_is_not_stored() -> None:
    assert reason(response=[("vary", "accept, *")]) is NoStoreReason.VARY_STAR
    assert reason(response=[("vary", "accept"), ("vary", "*")]) is NoStoreReason.VARY_STAR
    assert reason(response=[("vary", "accept")]) is None


@pytest.mark.parametrize("status", sorted(HEURISTICALLY_CACHEABLE - {206}))
def test_without_a_lifetime_a_validator_must_help(status: int) -> None:
    assert reason(None, status=status) is NoStoreReason.NO_FRESHNESS
    assert reason(None, status=status, lifetime=True) is None
    by_validator = None if status in (200, 203) else NoStoreReason.NO_FRESHNESS
    assert reason(None, status=status, response=[("etag", '"a"')]) is by_validator
    assert reason(None, status=status, response=[("last-modified", "x")]) is by_validator


@pytest.mark.parametrize("status", [201, 202, 302, 303, 307, 400, 403, 500, 502, 503, 504, 599])
def test_other_statuses_need_a_lifetime(status: int) -> None:
    assert not may_use_heuristics(status, CacheControl())
    assert reason(None, status=status, response=[("etag", '"a"')]) is NoStoreReason.STATUS
    assert reason(None, status=status, lifetime=True) is None
    assert may_use_heuristics(status, CacheControl(public=True))
    assert reason("public", status=status) is NoStoreReason.NO_FRESHNESS
    assert reason("public", status=status, lifetime=True) is None


def test_what_could_never_be_used_again_is_not_stored() -> None:
    assert reason("no-cache, max-age=60") is NoStoreReason.NO_FRESHNESS
    assert reason("no-cache", response=[("etag", '"a"')]) is None


header_fields = st.lists(
    st.tuples(
        st.sampled_from(["cache-control", "vary", "authorization", "etag", "expires", "range", "connection", "x"]),
        st.text(max_size=20) | st.sampled_from(["no-store", "private", "public", "max-age=5", "*"]),
    ),
    max_size=5,
)


@given(header_fields, header_fields, st.integers(-1, 1000), st.booleans())
def test_judging_is_total_and_never_passes_over_a_prohibition(
    request_fields: Fields, response_fields: Fields, status: int, lifetime: bool
) -> None:
    verdict = reason(None, status=status, request=request_fields, response=response_fields, lifetime=lifetime)
    cc = CacheControl.parse(Headers(response_fields).get("cache-control"))
    if cc.private or (cc.no_store and not cc.must_understand) or status in (206, 304):
        assert verdict is not None
    storable_fields(Headers(response_fields), cc)


def test_storable_fields() -> None:
    headers = Headers(
        [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("content-type", "text/plain"),
            ("x-b", "1"),
            ("x-b", "2"),
            ("etag", '"a"'),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("trailer", "x-sum"),
            ("set-cookie", "a=b"),
            ("set-cookie2", "a=b"),
            ("age", "5"),
            ("proxy-authenticate", "Basic"),
            ("proxy-authentication-info", "x"),
            ("x-meshcache-plan", "x"),
            ("x-envoy-upstream-service-time", "12"),
            ("www-authenticate", "Basic"),
        ]
    )
    kept = storable_fields(headers, CacheControl())
    assert [name for name, _ in kept] == ["date", "content-type", "x-b", "x-b", "etag", "www-authenticate"]
    assert storable_fields(Headers(kept), CacheControl()) == kept


def test_fields_of_a_qualified_no_cache_are_left_out() -> None:
    headers = Headers([("cache-control", 'max-age=5, no-cache="X-A, x-b"'), ("x-a", "1"), ("x-b", "2"), ("x-c", "3")])
    assert storable_fields(headers, CacheControl.parse(headers.get("cache-control"))) == (
        headers.fields[0],
        ("x-c", "3"),
    )
    assert storable_fields(headers, CacheControl()) == headers.fields


def test_a_missing_date_is_added() -> None:
    added = ("date", "Sun, 06 Nov 1994 08:49:37 GMT")
    assert storable_fields(Headers(), CacheControl(), response_time=784111777.5) == (added,)
    assert storable_fields(Headers([("date", "x")]), CacheControl(), response_time=784111777.5) == (("date", "x"),)
    assert storable_fields(Headers(), CacheControl()) == ()
