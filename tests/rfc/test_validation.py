from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.message import Headers
from meshcache.rfc.fields import format_http_date
from meshcache.rfc.validation import (
    add_validators,
    confirmed_by_head,
    contradicts,
    freshened,
    holds,
    not_modified,
    not_modified_fields,
    validates,
)

NOW = 1_700_000_000.0
Fields = list[tuple[str, str]]


def at(offset: float) -> str:
    return format_http_date(NOW + offset)


ETAG = ("etag", '"a"')
MODIFIED = ("last-modified", at(-1000))


@pytest.mark.parametrize(
    ("request_fields", "stored", "expected"),
    [
        ([], [], {}),
        ([], [ETAG], {"if-none-match": '"a"'}),
        ([], [("etag", 'W/"a"')], {"if-none-match": 'W/"a"'}),
        ([], [MODIFIED], {"if-modified-since": at(-1000)}),
        ([], [ETAG, MODIFIED], {"if-none-match": '"a"', "if-modified-since": at(-1000)}),
        # What the client asked about its own copy must not decide about ours.
        ([("if-none-match", '"z"')], [ETAG], {"if-none-match": '"a"'}),
        ([("if-none-match", '"z"')], [MODIFIED], {"if-none-match": None, "if-modified-since": at(-1000)}),
        ([("if-modified-since", at(0))], [ETAG], {"if-none-match": '"a"', "if-modified-since": None}),
        ([("if-none-match", '"z"'), ("if-modified-since", at(0))], [("x", "1")], {}),
        # Broken validators validate nothing.
        ([], [("etag", '"a'), ("last-modified", "yesterday")], {}),
        ([], [("etag", '"a"'), ("etag", '"b"')], {}),
    ],
)
def test_add_validators(request_fields: Fields, stored: Fields, expected: dict[str, str | None]) -> None:
    assert add_validators(Headers(request_fields), 200, stored, now=NOW) == expected


@pytest.mark.parametrize(
    ("stored", "received", "expected"),
    [
        ([ETAG], [ETAG], True),
        ([ETAG, MODIFIED], [("etag", '"b"')], False),
        ([ETAG, MODIFIED], [("etag", '"b"'), MODIFIED], False),
        # The tag was all that was asked about.
        ([ETAG], [("etag", '"b"')], True),
        ([ETAG, ("last-modified", "yesterday")], [("etag", '"b"')], True),
        ([ETAG], [("etag", 'W/"a"')], True),
        ([("etag", 'W/"a"')], [("etag", 'W/"a"')], True),
        ([("etag", 'W/"a"')], [ETAG], False),  # a strong tag needs a strong equal
        ([("etag", 'W/"a"')], [("etag", 'W/"b"')], True),
        ([("etag", 'W/"a"'), MODIFIED], [("etag", 'W/"b"')], False),
        ([MODIFIED], [ETAG], False),
        ([ETAG, MODIFIED], [ETAG, ("last-modified", at(0))], True),
        ([ETAG, MODIFIED], [MODIFIED], True),
        ([MODIFIED], [("last-modified", at(0))], False),
        ([ETAG], [MODIFIED], False),
        ([("last-modified", "Sunday, 06-Nov-94 08:49:37 GMT")], [("last-modified", "Sun Nov  6 08:49:37 1994")], True),
        ([("last-modified", "x")], [("last-modified", "y")], False),
        ([ETAG], [("x", "1")], True),
        ([], [], True),
    ],
)
def test_which_304_speaks_of_the_stored_response(stored: Fields, received: Fields, expected: bool) -> None:
    assert validates(stored, Headers(received), now=NOW) is expected


def renewed(stored: Iterable[tuple[str, str]], received: Headers) -> tuple[tuple[str, str], ...]:
    return freshened(stored, received, targets=("cdn-cache-control",), response_time=NOW)


def test_a_304_does_not_rename_what_is_stored() -> None:
    updated = Headers(freshened([ETAG], Headers([("etag", '"b"'), ("x", "1")]), targets=(), response_time=NOW))
    assert (updated.get("etag"), updated.get("x")) == ('"a"', "1")


def test_freshened_replaces_adds_and_keeps() -> None:
    stored = [("date", at(-500)), ("x-a", "1"), ("x-a", "2"), ("x-kept", "1"), ETAG, ("content-type", "text/plain")]
    received = Headers(
        [
            ("date", at(0)),
            ("x-a", "3"),
            ("x-new", "1"),
            ETAG,
            ("content-type", "text/html"),
            ("cache-control", "public"),
        ]
    )
    updated = Headers(renewed(stored, received))
    assert updated.get_all("x-a") == ["3"]
    assert updated.get_all("date") == [at(0)]
    assert updated.get("x-kept") == "1"
    assert updated.get("x-new") == "1"
    assert updated.get("content-type") == "text/html"
    assert updated.get_all("etag") == ['"a"']
    assert len(updated) == 7


@pytest.mark.parametrize(
    "name", ["content-length", "content-encoding", "content-range", "content-md5", "content-digest", "repr-digest"]
)
def test_freshened_leaves_what_describes_the_stored_octets(name: str) -> None:
    updated = Headers(renewed([(name, "old")], Headers([(name, "new")])))
    assert updated.get(name) == "old"
    assert name not in Headers(renewed([], Headers([(name, "new")])))


def test_freshened_takes_over_nothing_that_may_not_be_stored() -> None:
    received = Headers(
        [
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("set-cookie", "a=b"),
            ("age", "7"),
            ("x-meshcache-plan", "1"),
            ("date", at(0)),
        ]
    )
    assert renewed([ETAG], received) == (ETAG, ("date", at(0)))


def test_freshened_makes_the_date_new_even_without_one_in_the_304() -> None:
    assert renewed([("date", at(-500))], Headers()) == (("date", at(0)),)


def test_freshened_obeys_a_qualified_no_cache_of_either_response() -> None:
    stored = [("cache-control", 'no-cache="x-a"'), ("date", at(0))]
    assert renewed(stored, Headers([("x-a", "1")])) == tuple(stored)
    stored = [("x-a", "1"), ("date", at(0))]
    received = Headers([("cache-control", 'no-cache="x-a"'), ("date", at(0))])
    assert "x-a" not in Headers(renewed(stored, received))


def test_freshened_obeys_what_is_addressed_to_this_cache() -> None:
    received = Headers([("cache-control", 'private="x-b"'), ("cdn-cache-control", 'private="x-a"')])
    updated = Headers(renewed([("x-a", "1"), ("x-b", "2")], received))
    assert "x-a" not in updated
    assert updated.get("x-b") == "2"


@pytest.mark.parametrize(
    ("stored", "received", "expected"),
    [
        ([ETAG, MODIFIED], [], True),
        ([], [], True),
        ([ETAG], [ETAG], True),
        ([ETAG], [("etag", '"b"')], False),
        ([ETAG], [("etag", 'W/"a"')], False),
        ([], [ETAG], False),
        ([MODIFIED], [MODIFIED], True),
        ([MODIFIED], [("last-modified", at(0))], False),
        ([ETAG, MODIFIED], [ETAG, ("last-modified", at(0))], False),
        ([ETAG], [("content-length", "4")], True),
        ([ETAG], [ETAG, ("content-length", "5")], False),
        ([], [("content-length", "x")], False),
        ([("content-encoding", "gzip")], [("content-encoding", "gzip")], True),
        ([], [("content-encoding", "gzip")], False),
        # A digest of the octets tells more than any validator.
        ([ETAG, ("repr-digest", "sha-256=:a:")], [ETAG, ("repr-digest", "sha-256=:b:")], False),
        ([ETAG, ("repr-digest", "sha-256=:a:")], [ETAG, ("repr-digest", "sha-256=:a:")], True),
        ([ETAG], [ETAG, ("repr-digest", "sha-256=:b:")], True),
        ([("content-md5", "a")], [("content-md5", "b")], False),
        # Where no validator tells, what describes the content has to be the same.
        ([("content-type", "text/html")], [("content-type", "text/html")], True),
        ([("content-type", "text/html")], [], True),
        ([("content-type", "text/html")], [("content-type", "text/plain")], False),
        ([], [("content-type", "text/plain")], False),
        ([("content-language", "de")], [("content-language", "en")], False),
        ([("content-location", "/a.de")], [("content-location", "/a.en")], False),
        ([("content-type", "text/html")], [("content-length", "4"), ("content-type", "text/plain")], False),
        # Where one does, it may be called otherwise now.
        ([ETAG, ("content-type", "text/html")], [ETAG, ("content-type", "text/plain")], True),
    ],
)
def test_which_answer_to_head_speaks_of_the_stored_response(stored: Fields, received: Fields, expected: bool) -> None:
    assert confirmed_by_head(stored, 4, Headers(received), now=NOW) is expected


@pytest.mark.parametrize(
    ("request_fields", "stored", "expected"),
    [
        ([], [ETAG, MODIFIED], False),
        ([("if-none-match", '"a"')], [ETAG], True),
        ([("if-none-match", 'W/"a"')], [ETAG], True),
        ([("if-none-match", '"a"')], [("etag", 'W/"a"')], True),
        ([("if-none-match", '"x", "a" , "y"')], [ETAG], True),
        ([("if-none-match", '"x"'), ("if-none-match", '"a"')], [ETAG], True),
        ([("if-none-match", '"x"')], [ETAG], False),
        ([("if-none-match", '"x,"a"')], [("etag", '"a"')], False),
        ([("if-none-match", "a")], [ETAG], True),
        ([("if-none-match", "b")], [ETAG], False),
        ([("if-none-match", "a")], [("etag", "a")], True),
        ([("if-none-match", 'w/"a"')], [ETAG], True),
        ([("if-none-match", "*")], [], True),
        ([("if-none-match", '"*"')], [ETAG], False),
        ([("if-none-match", '"a"')], [MODIFIED], False),
        ([("if-none-match", "")], [ETAG], False),
        # If-None-Match alone decides, even when it is garbage.
        ([("if-none-match", '"x"'), ("if-modified-since", at(0))], [ETAG, MODIFIED], False),
        ([("if-none-match", "{"), ("if-modified-since", at(0))], [MODIFIED], False),
        ([("if-none-match", '"a"'), ("if-modified-since", at(-5000))], [ETAG, MODIFIED], True),
        ([("if-modified-since", at(-1000))], [MODIFIED], True),
        ([("if-modified-since", at(-999))], [MODIFIED], True),
        ([("if-modified-since", at(-1001))], [MODIFIED], False),
        (
            [("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT")],
            [("last-modified", "Sun Nov  6 08:49:37 1994")],
            True,
        ),
        ([("if-modified-since", "garbage")], [MODIFIED], False),
        ([("if-modified-since", at(0)), ("if-modified-since", at(0))], [MODIFIED], False),
        ([("if-modified-since", at(-1000))], [("date", at(-1000))], True),
        ([("if-modified-since", at(-1001))], [("date", at(-1000))], False),
        ([("if-modified-since", at(0))], [("last-modified", "garbage"), ("date", at(-1000))], False),
    ],
)
def test_not_modified(request_fields: Fields, stored: Fields, expected: bool) -> None:
    assert not_modified(Headers(request_fields), stored, 200, response_time=NOW) is expected


def test_the_time_of_arrival_stands_in_for_dates() -> None:
    request = Headers([("if-modified-since", at(0))])
    assert not_modified(request, [], 200, response_time=NOW)
    assert not not_modified(request, [], 200, response_time=NOW + 1)


@pytest.mark.parametrize("status", [301, 404, 500])
def test_only_successes_have_preconditions(status: int) -> None:
    assert not not_modified(Headers([("if-none-match", "*")]), [ETAG], status, response_time=NOW)


def test_fields_of_a_generated_304() -> None:
    stored = [
        ("date", at(0)),
        ("cache-control", "max-age=5"),
        ("expires", at(5)),
        ("vary", "accept"),
        ("content-location", "/x"),
        ("access-control-allow-origin", "*"),
        ("content-type", "text/plain"),
        ("content-length", "5"),
        ("content-encoding", "gzip"),
        ("content-language", "en"),
        MODIFIED,
    ]
    kept = ["date", "cache-control", "expires", "vary", "content-location", "access-control-allow-origin"]
    assert [name for name, _ in not_modified_fields(stored)] == [*kept, "last-modified"]
    assert [name for name, _ in not_modified_fields([*stored, ETAG])] == [*kept, "etag"]


fields = st.lists(
    st.tuples(
        st.sampled_from(["etag", "last-modified", "date", "cache-control", "x", "content-length", "if-none-match"]),
        st.text(max_size=12) | st.sampled_from(['"a"', 'W/"a"', "*", at(0), at(5)]),
    ),
    max_size=5,
)


@given(fields, fields)
def test_validation_is_total(one: Fields, other: Fields) -> None:
    add_validators(Headers(one), 200, other, now=NOW)
    validates(one, Headers(other), now=NOW)
    confirmed_by_head(one, 4, Headers(other), now=NOW)
    not_modified(Headers(one), other, 200, response_time=NOW)
    not_modified_fields(one)


@given(fields, fields)
def test_freshening_twice_with_the_same_304_changes_nothing_more(stored: Fields, received: Fields) -> None:
    once = renewed(stored, Headers(received))
    assert sorted(renewed(once, Headers(received))) == sorted(once)


@given(fields)
def test_a_client_that_sends_the_stored_tag_gets_a_304(stored: Fields) -> None:
    validator = add_validators(Headers(), 200, stored, now=NOW).get("if-none-match")
    if validator is not None:
        assert not_modified(Headers([("if-none-match", validator)]), stored, 200, response_time=NOW)


@pytest.mark.parametrize(("status", "asked"), [(200, True), (203, True), (204, False), (301, False), (404, False)])
def test_a_304_speaks_of_a_200_only(status: int, asked: bool) -> None:
    assert bool(add_validators(Headers(), status, [ETAG, MODIFIED], now=NOW)) is asked


@pytest.mark.parametrize(
    ("stored", "received", "expected"),
    [
        ('"a"', '"b"', True),
        ('W/"a"', '"b"', True),
        ('"a"', '"a"', False),
        # What compression on the way does to a tag, and what says nothing of it.
        ('W/"a"', '"a"', False),
        ('"a"', 'W/"a"', False),
        ('"a"', None, False),
        (None, '"a"', False),
        ('"a"', '"a", "b"', False),
    ],
)
def test_which_304_speaks_of_something_else(stored: str | None, received: str | None, expected: bool) -> None:
    def fields(tag: str | None) -> Fields:
        return [] if tag is None else [("etag", tag)]

    assert contradicts(fields(stored), Headers(fields(received))) is expected


@pytest.mark.parametrize(
    ("named", "told", "expected"),
    [
        ('"a"', '"a"', True),
        ('"b", W/"a"', '"a"', True),
        ('"b"', '"a"', False),
        ("*", '"a"', False),
        (None, '"a"', False),
        ('"a"', None, False),
    ],
)
def test_who_holds_what_a_304_speaks_of(named: str | None, told: str | None, expected: bool) -> None:
    request = Headers([] if named is None else [("if-none-match", named)])
    assert holds(request, Headers([] if told is None else [("etag", told)])) is expected
