"""Range requests: parsing, the bytes that are meant, and the validators that parts are told apart by."""

from __future__ import annotations

import time
from email.parser import BytesParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.rfc.multipart import multipart_byteranges
from meshcache.rfc.ranges import (
    MOST_RANGES,
    PART_OVERHEAD,
    ByteRange,
    ContentRange,
    RangeSpec,
    coalesced,
    format_content_range,
    if_range_holds,
    parse_content_range,
    parse_range,
    satisfiable,
    strong_validator,
)

NOW = 1_700_000_000.0
MODIFIED = "Mon, 13 Nov 2023 08:00:00 GMT"
MADE = "Tue, 14 Nov 2023 22:13:20 GMT"
SOON = "Mon, 13 Nov 2023 08:00:59 GMT"
LATER = "Mon, 13 Nov 2023 08:01:00 GMT"

specs = st.one_of(
    st.builds(RangeSpec, st.none(), st.integers(0, 300)),
    st.builds(RangeSpec, st.integers(0, 300), st.none()),
    st.tuples(st.integers(0, 300), st.integers(0, 300)).map(lambda pair: RangeSpec(min(pair), max(pair))),
)
spec_lists = st.lists(specs, min_size=1, max_size=8)


def written(spec: RangeSpec) -> str:
    return f"{'' if spec.first is None else spec.first}-{'' if spec.last is None else spec.last}"


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        (None, None),
        ("bytes=0-4", ((0, 4),)),
        ("BYTES=0-4", ((0, 4),)),
        ("bytes=5-", ((5, None),)),
        ("bytes=-5", ((None, 5),)),
        ("bytes=-0", ((None, 0),)),
        ("bytes=007-08", ((7, 8),)),
        ("bytes=0-0, 2-3 ,\t-1", ((0, 0), (2, 3), (None, 1))),
        ("bytes=,0-0,,1-1,", ((0, 0), (1, 1))),
        ("bytes=4-3", None),
        ("bytes=0-4,4-3", None),
        ("bytes=", None),
        ("bytes=,", None),
        ("bytes", None),
        ("", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=0-4;q=1", None),
        ("bytes=0 - 4", None),
        ("bytes=--4", None),
        ("bytes=+1-4", None),
        ("bytes=0-4-5", None),
        ("bytes=\u0661-\u0662", None),
        ("bytes=0-1, bytes=2-3", None),
        ("bytes =0-1", None),
        ("lines=0-4", None),
        ("seconds=1-2", None),
    ],
)
def test_parsing(value: str | None, parsed: tuple[tuple[int | None, int | None], ...] | None) -> None:
    assert parse_range(value) == parsed


def test_no_more_ranges_than_the_limit() -> None:
    most = ",".join(f"{2 * number}-{2 * number}" for number in range(MOST_RANGES))
    assert len(parse_range(f"bytes={most}") or ()) == MOST_RANGES
    assert parse_range(f"bytes={most},900-901") is None


def test_positions_beyond_any_representation() -> None:
    huge = "9" * 5000
    assert satisfiable(parse_range(f"bytes=0-{huge}") or (), 10) == [(0, 9)]
    assert satisfiable(parse_range(f"bytes=-{huge}") or (), 10) == [(0, 9)]
    assert satisfiable(parse_range(f"bytes={huge}-") or (), 10) == []
    assert parse_content_range(f"bytes 0-{huge}/*") is None


@pytest.mark.parametrize(
    ("value", "length", "found"),
    [
        ("bytes=0-0", 10, [(0, 0)]),
        ("bytes=0-99", 10, [(0, 9)]),
        ("bytes=9-", 10, [(9, 9)]),
        ("bytes=10-", 10, []),
        ("bytes=-3", 10, [(7, 9)]),
        ("bytes=-30", 10, [(0, 9)]),
        ("bytes=-0", 10, []),
        ("bytes=20-,0-1,-0,-1", 10, [(0, 1), (9, 9)]),
        ("bytes=0-", 0, []),
        ("bytes=-1", 0, []),
    ],
)
def test_the_bytes_that_are_meant(value: str, length: int, found: list[tuple[int, int]]) -> None:
    assert satisfiable(parse_range(value) or (), length) == found


@given(spec_lists, st.integers(0, 200))
def test_a_list_of_ranges_means_the_slices_that_the_rfc_defines(wanted: list[RangeSpec], length: int) -> None:
    value = "bytes=" + ",".join(map(written, wanted))
    assert parse_range(value) == tuple(wanted)
    body = bytes(number % 251 for number in range(length))
    slices = []
    for first, last in wanted:
        if first is None:
            slices.append(body[-last:] if last else b"")
        else:
            slices.append(body[first:] if last is None else body[first : last + 1])
    found = [body[first : last + 1] for first, last in satisfiable(wanted, length)]
    assert found == [piece for piece in slices if piece]


@given(spec_lists, st.integers(1, 2000))
def test_coalescing_loses_no_byte_and_no_order(wanted: list[RangeSpec], length: int) -> None:
    ranges = satisfiable(wanted, length)
    merged = coalesced(ranges)
    for first, last in ranges:
        assert any(one.first <= first and last <= one.last for one in merged)
    for one in merged:
        assert one.first in {found.first for found in ranges}
        assert one.last in {found.last for found in ranges}
    in_place = sorted(merged)
    for before, after in pairwise(in_place):
        assert after.first - before.last > PART_OVERHEAD
    order = [min(turn for turn, found in enumerate(ranges) if one.first <= found.first <= one.last) for one in merged]
    assert order == sorted(order)
    assert coalesced(merged) == merged


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("bytes 0-4/10", (0, 4, 10)),
        ("Bytes 0-4/*", (0, 4, None)),
        ("bytes 9-9/10", (9, 9, 10)),
        ("bytes  0-4/10", (0, 4, 10)),
        ("bytes 0-10/10", None),
        ("bytes 4-3/10", None),
        ("bytes */10", None),
        ("bytes */*", None),
        ("bytes=0-4/10", None),
        ("bytes 0-4", None),
        ("bytes 0-/10", None),
        ("bytes 0-4/10, bytes 5-9/10", None),
        ("lines 0-4/10", None),
        ("anything", None),
        ("", None),
        (None, None),
    ],
)
def test_content_range(value: str | None, said: tuple[int, int, int | None] | None) -> None:
    assert parse_content_range(value) == said


@given(st.integers(0, 10**17), st.integers(0, 10**6), st.none() | st.integers(1, 10**6))
def test_content_range_is_read_as_it_was_written(first: int, more: int, beyond: int | None) -> None:
    last = first + more
    total = None if beyond is None else last + beyond
    assert parse_content_range(format_content_range(first, last, total)) == ContentRange(first, last, total)


@pytest.mark.parametrize(
    ("if_range", "fields", "holds"),
    [
        (None, {}, True),
        ('"a"', {"etag": '"a"'}, True),
        ('"a"', {"etag": '"b"'}, False),
        ('"a"', {}, False),
        ('"a"', {"etag": 'W/"a"'}, False),
        ('W/"a"', {"etag": 'W/"a"'}, False),
        ('W/"a"', {"etag": '"a"'}, False),
        ('"a", "b"', {"etag": '"a"'}, False),
        ("*", {"etag": '"a"'}, False),
        (MODIFIED, {"last-modified": MODIFIED, "date": MADE}, True),
        (MODIFIED, {"last-modified": MODIFIED, "date": LATER}, True),
        (MODIFIED, {"last-modified": MODIFIED, "date": SOON}, False),
        (MODIFIED, {"last-modified": MODIFIED}, False),
        (MADE, {"last-modified": MODIFIED, "date": MADE}, False),
        (MODIFIED.upper(), {"last-modified": MODIFIED, "date": MADE}, False),
        ("yesterday", {"last-modified": "yesterday", "date": MADE}, False),
        ("", {"etag": '"a"'}, False),
    ],
)
def test_if_range(if_range: str | None, fields: dict[str, str], holds: bool) -> None:
    assert if_range_holds(if_range, fields.items(), response_time=NOW) is holds


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, None),
        ({"etag": '"a"'}, "etag"),
        ({"etag": 'W/"a"'}, None),
        ({"etag": 'W/"a"', "last-modified": MODIFIED, "date": MADE}, None),
        ({"last-modified": MODIFIED, "date": MADE}, "last-modified"),
        ({"last-modified": MODIFIED, "date": SOON}, None),
        ({"etag": '"a"', "last-modified": MODIFIED, "date": MADE}, "etag"),
    ],
)
def test_strong_validators(fields: dict[str, str], name: str | None) -> None:
    found = strong_validator(fields.items(), response_time=NOW)
    assert (None if found is None else found[0]) == name


@given(st.text(st.characters(max_codepoint=255), max_size=60) | st.from_regex(r"(bytes[= ])?[-0-9,/* ]{0,40}"))
def test_no_text_makes_a_parser_raise(text: str) -> None:
    for spec in parse_range(text) or ():
        assert spec.first is None or spec.last is None or spec.first <= spec.last
    said = parse_content_range(text)
    assert said is None or said.first <= said.last
    if_range_holds(text, [("etag", text), ("last-modified", text), ("date", text)], response_time=NOW)
    strong_validator([("etag", text)], response_time=NOW)


@pytest.mark.parametrize("piece", ["0-0,", ",", "1", "-", "=", '"', "bytes=", "bytes 0-1/2,", "\\"])
def test_parsing_takes_linear_time(piece: str) -> None:
    began = time.thread_time()
    for text in (piece * 100_000, "bytes=" + piece * 100_000, "bytes " + piece * 100_000):
        parse_range(text)
        parse_content_range(text)
    assert time.thread_time() - began < 1.0


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=80)), min_size=1, max_size=5),
    st.none() | st.just("text/plain; charset=utf-8"),
)
def test_a_multipart_answer_is_read_by_others_as_it_was_meant(
    pieces: list[tuple[int, bytes]], content_type: str | None
) -> None:
    parts = [(ByteRange(first, first + len(content) - 1), content) for first, content in pieces]
    named, body = multipart_byteranges(parts, total=10**7, content_type=content_type)
    read = BytesParser().parsebytes(f"content-type: {named}\r\n".encode() + body)
    assert read.is_multipart()
    assert not read.defects
    found = read.get_payload()
    assert len(found) == len(parts)
    boundary = named.partition("boundary=")[2].encode()
    for part, ((first, last), _) in zip(found, parts, strict=True):
        assert part["content-range"] == f"bytes {first}-{last}/10000000"
        assert part["content-type"] == content_type
    contents = [part.partition(b"\r\n\r\n")[2] for part in body.split(b"\r\n--" + boundary)[1:-1]]
    assert contents == [content for _, content in parts]
    assert body.endswith(b"\r\n--" + boundary + b"--\r\n")


def test_nothing_that_an_answer_holds_can_be_its_boundary() -> None:
    part = (ByteRange(0, 9), b"0123456789")
    named, _ = multipart_byteranges([part], total=10, content_type=None)
    forged = named.partition("boundary=")[2].encode()
    again, body = multipart_byteranges(
        [(ByteRange(0, len(forged) + 3), b"\r\n--" + forged)], total=99, content_type=None
    )
    assert forged not in again.encode()
    assert body.count(again.partition("boundary=")[2].encode()) == 2
