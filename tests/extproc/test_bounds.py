"""Fields are added to a message only where that takes it beyond no bound that Envoy may have."""

from __future__ import annotations

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import HttpHeaders

from meshcache.envoy.clusters import MAX_HEADERS_COUNT, MAX_HEADERS_KB
from meshcache.extproc.bounds import COUNTS, SIZES, room

ONE = [("cache-status", "x")]


def message(count: int, size: int = 2) -> HttpHeaders:
    """One of `count` fields, whose names and values are so many bytes each."""
    part = HttpHeaders()
    for _ in range(count):
        part.headers.headers.add(key="n", raw_value=b"v" * (size - 1))
    return part


def test_the_bounds_of_meshcache_up_are_among_them() -> None:
    assert MAX_HEADERS_COUNT in COUNTS
    assert MAX_HEADERS_KB << 10 in SIZES


@pytest.mark.parametrize(
    ("count", "fits"), [(1, True), (99, True), (100, False), (117, True), (199, True), (200, False)]
)
def test_no_field_is_one_too_many(count: int, fits: bool) -> None:
    assert room(message(count), ONE) is fits


def test_several_fields_at_once() -> None:
    assert room(message(97), ONE * 3)
    assert not room(message(98), ONE * 3)


def test_what_is_beyond_a_bound_as_it_came_is_not_changed_at_all() -> None:
    # The status counts once the message has been read.
    assert not room(message(201))
    assert room(message(200))
    assert room(message(217)), "its bound is evidently another one"


@pytest.mark.parametrize("bound", SIZES)
def test_no_byte_is_one_too_many(bound: int) -> None:
    tenth = bound // 10
    assert room(message(10, tenth - 100), ONE)
    # As long as allowed, or so close to it that framing may hide on which side.
    assert not room(message(10, tenth - 1), ONE)
    assert not room(message(10, tenth), ONE)
    assert not room(message(10, tenth - 100), [("etag", "x" * 2000)])
    assert room(message(10, tenth + 500), ONE), "its bound is evidently another one"
