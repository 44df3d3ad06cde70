"""The table of units that a pod's workers share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcache.tiers.link_exchange import packed, unpacked
from meshcache.tiers.link_table import Link, LinkTable

if TYPE_CHECKING:
    from pathlib import Path


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(path: Path, clock: Clock | None = None, buckets: int = 64) -> LinkTable:
    table = LinkTable(path, buckets=buckets, clock=clock or Clock())
    table.open()
    return table


def test_workers_see_what_the_others_have_put_in(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "links"), opened(tmp_path / "links")
    assert one.find(digest(1)) is None
    one.put(digest(1), digest(2), taken=False)
    assert other.find(digest(1)) == (digest(2), False)
    other.put(digest(1), digest(2), taken=True)
    assert one.find(digest(1)) == (digest(2), True)
    assert one.find(digest(2)) is None


def test_it_outlives_its_processes(tmp_path: Path) -> None:
    opened(tmp_path / "links").put(digest(1), digest(2), taken=True)
    later = LinkTable(tmp_path / "links", buckets=64)
    assert later.open_existing()
    assert later.find(digest(1)) == (digest(2), True)


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    table = LinkTable(tmp_path / "links", buckets=64)
    assert not table.open_existing()
    assert table.find(digest(1)) is None
    table.put(digest(1), digest(2), taken=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"MCLINKS", b"x" * (64 + 256 * 64), b"MCLINKS\x00" + bytes(56 + 256 * 64)])
def test_a_file_of_another_form_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "links").write_bytes(content)
    table = opened(tmp_path / "links")
    table.put(digest(1), digest(2), taken=False)
    assert opened(tmp_path / "links").find(digest(1)) == (digest(2), False)


def test_who_has_not_been_seen_for_longest_goes_first(tmp_path: Path) -> None:
    clock = Clock()
    table = opened(tmp_path / "links", clock, buckets=1)
    for number in range(5):
        table.put(digest(number), digest(number), taken=False)
        clock.now += 3600
    assert table.find(digest(0)) is not None
    table.put(digest(9), digest(9), taken=False)
    assert table.find(digest(1)) is None
    assert [table.find(digest(number)) is not None for number in (0, 2, 3, 4, 9)] == [True] * 5


def test_a_torn_entry_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "links"
    opened(path, buckets=1).put(digest(7), digest(8), taken=False)
    content = bytearray(path.read_bytes())
    at = content.index(digest(8), 64)
    content[at + 15] ^= 1
    path.write_bytes(content)
    table = opened(path, buckets=1)
    assert table.find(digest(7)) is None
    table.put(digest(7), digest(9), taken=False)
    assert table.find(digest(7)) == (digest(9), False)


def test_a_digest_within_another_entry_is_not_found(tmp_path: Path) -> None:
    table = opened(tmp_path / "links", buckets=1)
    table.put(digest(1), digest(2), taken=False)
    assert table.find(digest(2)) is None
    assert table.find((digest(1) + digest(2))[8:24]) is None


def test_the_older_counts_between_pods(tmp_path: Path) -> None:
    clock = Clock()
    table = opened(tmp_path / "links", clock)
    table.put(digest(1), digest(2), taken=False)
    made = int(clock.now)
    assert not table.merge(Link(digest(1), digest(3), False, made + 1))
    assert table.find(digest(1)) == (digest(2), False)
    assert table.merge(Link(digest(1), digest(3), False, made - 1))
    assert table.find(digest(1)) == (digest(3), False)
    assert table.merge(Link(digest(1), digest(9), True, made))
    assert not table.merge(Link(digest(1), digest(3), False, made))
    assert table.find(digest(1)) == (digest(3), True)


links = st.builds(Link, st.integers(0, 3).map(digest), st.integers(0, 3).map(digest), st.booleans(), st.integers(0, 5))


@given(st.lists(links, max_size=6).flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
@settings(deadline=None)
def test_pods_agree_whatever_order_they_hear_things_in(orders: tuple[list[Link], list[Link]]) -> None:
    results = []
    for order in orders:
        table = LinkTable.__new__(LinkTable)
        table.__init__(None, buckets=4, clock=lambda: 7200.0)  # type: ignore[misc, arg-type]
        table._map = memoryview(bytearray(64 + 4 * 256))
        for link in order:
            table.merge(link)
        results.append([table.find(digest(number)) for number in range(4)])
    assert results[0] == results[1]


@given(st.binary(max_size=100))
def test_no_message_raises(entries: bytes) -> None:
    found = unpacked(entries)
    assert len(found) == len(entries) // 37
    assert unpacked(packed(found)) == found


def test_what_is_new_is_told_once(tmp_path: Path) -> None:
    table = opened(tmp_path / "links")
    told: list[Link] = []
    table.on_new = told.append
    table.put(digest(1), digest(2), taken=False)
    table.find(digest(1))
    table.merge(Link(digest(3), digest(3), False, 1))
    assert [(link.unit, link.used) for link in told] == [(digest(1), digest(2))]
