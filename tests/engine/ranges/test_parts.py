"""Laws of parts: whatever came in whatever order, they hold the bytes of the representation and no others."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.engine.ranges import parts
from meshcache.engine.ranges.excerpts import excerpt
from meshcache.engine.ranges.parts import (
    MOST_PIECES,
    combined,
    completed,
    gap_of,
    is_part,
    part_of,
    ranges_of,
    read,
    total_of,
)
from meshcache.engine.records import StoredResponse
from meshcache.rfc.ranges import ByteRange, ContentRange, RangeSpec, parse_range, satisfiable

NOW = 1_700_000_000.0
BODY = bytes(range(1, 201))

spans = st.tuples(st.integers(0, 199), st.integers(0, 199)).map(lambda pair: (min(pair), max(pair)))
span_lists = st.lists(spans, min_size=1, max_size=12)


def received(body: bytes, **fields: str) -> StoredResponse:
    given = ({"etag": '"1"'} | fields).items()
    return StoredResponse(
        b"key", (), 206, tuple((name, value) for name, value in given if value), NOW, NOW, 0, False, body
    )


def part(first: int, last: int, total: int | None = len(BODY), fields: dict[str, str] | None = None) -> StoredResponse:
    made = part_of(received(BODY[first : last + 1], **(fields or {})), ContentRange(first, last, total))
    assert made is not None
    return made


def gathered(some: list[tuple[int, int]]) -> StoredResponse:
    whole = part(*some[0])
    for first, last in some[1:]:
        if not is_part(whole):
            break
        whole = combined(whole, part(first, last))
    return completed(whole)


def positions(stored: StoredResponse) -> set[int]:
    if not is_part(stored):
        return set(range(len(stored.body)))
    return {at for first, last in stored.spans for at in range(first, last + 1)}


@given(span_lists)
def test_parts_in_any_order_hold_the_bytes_of_all_of_them(some: list[tuple[int, int]]) -> None:
    stored = gathered(some)
    wanted = {at for first, last in some for at in range(first, last + 1)}
    assert positions(stored) == wanted
    assert stored.body == bytes(BODY[at] for at in sorted(wanted))
    assert is_part(stored) == (len(wanted) < len(BODY))
    assert positions(gathered(some[::-1])) == wanted
    ordered = [position for span in stored.spans for position in span]
    assert ordered == sorted(ordered)


@given(span_lists, span_lists, span_lists)
def test_combining_is_associative_and_idempotent(
    one: list[tuple[int, int]], two: list[tuple[int, int]], three: list[tuple[int, int]]
) -> None:
    made = [gathered(some) for some in (one, two, three)]
    if not all(map(is_part, made)):
        return
    a, b, c = made
    assert combined(a, a) == a
    left, right = combined(a, b), combined(b, c)
    if is_part(left) and is_part(right):
        assert combined(left, c) == combined(a, right)


@given(span_lists, spans)
def test_a_range_is_answered_by_its_bytes_or_not_at_all(some: list[tuple[int, int]], wanted: tuple[int, int]) -> None:
    stored = gathered(some)
    found = ranges_of(stored, [RangeSpec(*wanted)])
    if set(range(wanted[0], wanted[1] + 1)) <= positions(stored):
        assert found == [ByteRange(*wanted)]
        assert read(stored, found[0]) == BODY[wanted[0] : wanted[1] + 1]
    else:
        assert found is None


@given(span_lists)
def test_the_gap_is_all_that_is_missing(some: list[tuple[int, int]]) -> None:
    stored = gathered(some)
    if not is_part(stored):
        assert stored.body == BODY
        return
    gap = gap_of(stored)
    missing = set(range(len(BODY))) - positions(stored)
    runs = sum(1 for at in missing if at - 1 not in missing)
    assert (gap is None) == (runs != 1)
    if gap is not None:
        assert set(range(gap.first, gap.last + 1)) == missing
        whole = combined(stored, part(*gap))
        assert (whole.status, whole.body, whole.spans) == (200, BODY, ())


@given(st.lists(st.tuples(st.integers(0, 250), st.integers(0, 250) | st.none()), min_size=1, max_size=6))
def test_every_answer_out_of_a_whole_is_its_bytes(specs: list[tuple[int, int | None]]) -> None:
    wanted = tuple(RangeSpec(first, last) for first, last in specs if last is None or first <= last)
    if not wanted:
        return
    whole = msgspec.structs.replace(received(BODY), status=200)
    made = excerpt(whole, wanted, None)
    expected = satisfiable(wanted, len(BODY))
    if not expected:
        assert made is not None
        assert (made.status, dict(made.fields)["content-range"]) == (416, "bytes */200")
    elif len(expected) == 1:
        assert made is not None
        (first, last) = expected[0]
        assert (made.status, made.body) == (206, BODY[first : last + 1])
        assert dict(made.fields)["content-range"] == f"bytes {first}-{last}/200"
    elif made is not None:
        assert made.status == 206
        for first, last in expected:
            assert BODY[first : last + 1] in made.body


@given(span_lists, st.lists(spans, min_size=1, max_size=6))
def test_every_answer_out_of_a_part_is_its_bytes(some: list[tuple[int, int]], specs: list[tuple[int, int]]) -> None:
    stored = gathered(some)
    wanted = tuple(RangeSpec(*one) for one in specs)
    if not is_part(stored) or ranges_of(stored, wanted) is None:
        return
    made = excerpt(stored, wanted, None)
    assert made is not None
    assert made.status == 206
    for first, last in specs:
        assert BODY[first : last + 1] in made.body
    assert len(made.body) <= len(stored.body) + 400 * len(specs)


@pytest.mark.parametrize("value", ["bytes=0-9,5-14,0-14", "bytes=" + ",".join(["0-199"] * 60)])
def test_ranges_that_overlap_are_sent_once(value: str) -> None:
    wanted = parse_range(value)
    assert wanted is not None
    made = excerpt(part(0, 198, 250) if "199" not in value else part(0, 199, 250), wanted, None)
    assert made is not None
    assert len(made.body) in (15, 200)


@pytest.mark.parametrize(
    ("changes", "joined"),
    [
        ({}, True),
        ({"etag": '"2"'}, False),
        ({"etag": 'W/"1"'}, False),
        ({"etag": ""}, False),
    ],
)
def test_only_parts_of_one_representation_are_combined(changes: dict[str, str], joined: bool) -> None:
    older, newer = part(0, 9), part(10, 19, fields=changes)
    made = combined(older, newer)
    assert made.spans == (((0, 19),) if joined else ((10, 19),))
    if not joined:
        assert made == newer


def test_a_length_that_differs_or_another_key_keeps_parts_apart() -> None:
    assert combined(part(0, 9), part(10, 19, 300)).spans == ((10, 19),)
    assert combined(part(0, 9, None), part(10, 19, 300)).total == 300
    assert combined(part(0, 9, 300), part(10, 19, None)).total == 300
    other = msgspec.structs.replace(part(0, 9), key=b"other")
    assert combined(other, part(10, 19)).spans == ((10, 19),)


def test_dates_that_are_strong_join_parts_too() -> None:
    dated = {"etag": "", "last-modified": "Mon, 13 Nov 2023 08:00:00 GMT", "date": "Tue, 14 Nov 2023 22:13:20 GMT"}
    assert combined(part(0, 9, fields=dated), part(10, 19, fields=dated)).spans == ((0, 19),)
    soon = dated | {"date": "Mon, 13 Nov 2023 08:00:01 GMT"}
    assert combined(part(0, 9, fields=soon), part(10, 19, fields=soon)).spans == ((10, 19),)


def test_the_newer_fields_replace_the_older_ones() -> None:
    older = part(0, 9, fields={"x-a": "1", "x-b": "1", "content-md5": "m"})
    made = combined(older, part(10, 19, fields={"x-a": "2", "x-c": "2"}))
    assert dict(made.fields) == {"etag": '"1"', "x-a": "2", "x-b": "1", "x-c": "2"}
    authorized = combined(msgspec.structs.replace(older, authorized=True), part(10, 19))
    assert authorized.authorized
    tagged = combined(msgspec.structs.replace(older, tags=("a", "b")), msgspec.structs.replace(older, tags=("b", "c")))
    assert tagged.tags == ("b", "c", "a")


@pytest.mark.parametrize(
    ("size", "said", "fields", "held"),
    [
        (5, (4, 8, 10), {}, (4, 8, 10)),
        (5, (4, 8, None), {}, (4, 8, -1)),
        (5, (4, 9, 10), {"etag": ""}, (4, 8, 9)),
        (5, (4, 9, 10), {"etag": 'W/"1"'}, (4, 8, 9)),
        (5, (4, 9, 10), {}, None),
        (5, (4, 9, 11), {"etag": ""}, None),
        (5, (4, 9, None), {"etag": ""}, None),
        (7, (4, 9, 10), {"etag": ""}, None),
        (0, (4, 9, 10), {"etag": ""}, None),
    ],
)
def test_what_content_range_says_must_fit_the_content(
    size: int, said: tuple[int, int, int | None], fields: dict[str, str], held: tuple[int, int, int] | None
) -> None:
    made = part_of(received(b"x" * size, **fields), ContentRange(*said))
    assert (None if made is None else (*made.spans[0], made.total)) == held


def test_a_part_without_length_answers_only_what_names_both_ends() -> None:
    stored = part(10, 19, None)
    assert total_of(stored) is None
    assert ranges_of(stored, [RangeSpec(12, 14)]) == [(12, 14)]
    for value in ("bytes=12-", "bytes=-5", "bytes=12-14,500-", "bytes=12-20"):
        assert ranges_of(stored, parse_range(value) or ()) is None
    made = excerpt(stored, (RangeSpec(12, 14),), None)
    assert made is not None
    assert dict(made.fields)["content-range"] == "bytes 12-14/*"
    assert gap_of(stored) is None


def test_pieces_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = part(0, 0)
    for number in range(1, 3 * MOST_PIECES):
        stored = combined(stored, part(2 * number, 2 * number))
        assert len(stored.spans) <= MOST_PIECES
        assert (2 * number, 2 * number) in stored.spans
    monkeypatch.setattr(parts, "MOST_GATHERED_BYTES", 50)
    stored = combined(combined(part(0, 19), part(40, 59)), part(80, 99))
    assert len(stored.body) == 40
    assert (80, 99) in stored.spans
    assert combined(part(0, 99), part(100, 199)).status == 200
