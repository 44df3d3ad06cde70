"""One unit for each caller, whatever he shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshcache.experiment.links import unit_in_use

SUBJECT, OTHER, COOKIE, HEADER = b"s", b"t", b"c", b"h"


class Memory:
    def __init__(self) -> None:
        self.known: dict[bytes, tuple[bytes, bool]] = {}
        self.written = 0

    def find(self, unit: bytes) -> tuple[bytes, bool] | None:
        return self.known.get(unit)

    def put(self, unit: bytes, used: bytes, *, taken: bool) -> None:
        self.written += 1
        self.known[unit] = (used, taken)


def test_a_login_keeps_the_unit_of_before() -> None:
    memory = Memory()
    assert unit_in_use([COOKIE], memory) == COOKIE
    assert unit_in_use([SUBJECT, COOKIE], memory) == COOKIE
    assert unit_in_use([SUBJECT], memory) == COOKIE
    assert unit_in_use([COOKIE], memory) == COOKIE


def test_who_was_first_seen_logged_in_keeps_that_without() -> None:
    memory = Memory()
    assert unit_in_use([SUBJECT], memory) == SUBJECT
    assert unit_in_use([SUBJECT, COOKIE], memory) == SUBJECT
    assert unit_in_use([COOKIE], memory) == SUBJECT


def test_a_weaker_unit_is_given_to_one_stronger_one_only() -> None:
    memory = Memory()
    unit_in_use([COOKIE], memory)
    assert unit_in_use([SUBJECT, COOKIE], memory) == COOKIE
    assert unit_in_use([OTHER, COOKIE], memory) == OTHER
    # The same where both were new at once.
    memory = Memory()
    assert unit_in_use([SUBJECT, COOKIE], memory) == SUBJECT
    assert unit_in_use([OTHER, COOKIE], memory) == OTHER
    assert unit_in_use([OTHER], memory) == OTHER


def test_of_two_that_are_known_the_stronger_counts() -> None:
    memory = Memory()
    unit_in_use([SUBJECT], memory)
    unit_in_use([COOKIE], memory)
    assert unit_in_use([SUBJECT, COOKIE], memory) == SUBJECT
    assert unit_in_use([COOKIE], memory) == COOKIE


def test_what_is_known_is_written_once() -> None:
    memory = Memory()
    unit_in_use([SUBJECT, HEADER, COOKIE], memory)
    assert memory.written == 3
    unit_in_use([SUBJECT, HEADER, COOKIE], memory)
    assert memory.written == 3


@given(st.lists(st.sets(st.sampled_from([0, 1, 2]), min_size=1), max_size=12))
def test_one_caller_has_one_unit_as_soon_as_his_kinds_have_met(visits: list[set[int]]) -> None:
    """He shows some of his three kinds at each visit; a kind that was shown beside another one stays with its unit."""
    memory = Memory()
    of: dict[int, bytes] = {}
    for shown in visits:
        used = unit_in_use([bytes([kind]) for kind in sorted(shown)], memory)
        if min(shown) in of:
            # By the strongest that he shows, nobody ever changes.
            assert used == of[min(shown)]
        for kind in shown:
            of.setdefault(kind, used)
