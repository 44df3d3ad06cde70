"""Assignment to arms: sticky, by weight, moving no more than it must."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcache.experiment.assignment import Assigner, cookie_value
from meshcache.message import Headers

UNITS = [f"header:x-user-id\0{number}".encode() for number in range(4000)]
SECRET = b"a secret of the installation"

weights = st.lists(st.integers(0, 100), min_size=2, max_size=5).filter(any)


def arms(values: list[int]) -> list[tuple[str, int]]:
    return [(f"arm-{number}", weight) for number, weight in enumerate(values)]


def within(found: int, total: int, share: float) -> bool:
    """Within 5 standard deviations of the binomial distribution: wrong once in a few million tries."""
    return abs(found - total * share) <= 5 * math.sqrt(total * share * (1 - share)) + 1


@given(st.binary(max_size=80), weights, st.binary(max_size=40))
def test_a_unit_stays_in_its_arm(secret: bytes, values: list[int], unit: bytes) -> None:
    first = Assigner(secret, "e", arms(values)).choose(unit)
    assert Assigner(secret, "e", arms(values)).choose(unit) == first
    assert values[first] > 0


@given(weights, st.text(min_size=1, max_size=10))
@settings(max_examples=20, deadline=None)
def test_shares_follow_the_weights(values: list[int], experiment: str) -> None:
    assigner = Assigner(SECRET, experiment, arms(values))
    counts = [0] * len(values)
    for unit in UNITS:
        counts[assigner.choose(unit)] += 1
    for found, weight in zip(counts, values, strict=True):
        assert within(found, len(UNITS), weight / sum(values))


@given(weights, weights)
@settings(max_examples=25, deadline=None)
def test_a_unit_moves_only_to_an_arm_that_has_gained_on_its_own(before: list[int], after: list[int]) -> None:
    size = min(len(before), len(after))
    before, after = before[:size], after[:size]
    if not any(before) or not any(after):
        return
    old, new = Assigner(SECRET, "e", arms(before)), Assigner(SECRET, "e", arms(after))
    for unit in UNITS[:1000]:
        source, target = old.choose(unit), new.choose(unit)
        if source != target:
            assert after[target] * before[source] > after[source] * before[target]


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ([90, 10], [50, 50], 0.40),
        ([98, 1, 1], [50, 25, 25], 0.48),
        ([50, 50], [50, 0], 0.50),
        ([90, 10], [9, 1], 0.0),
    ],
)
def test_exactly_the_share_that_has_to_move_does(before: list[int], after: list[int], moved: float) -> None:
    old, new = Assigner(SECRET, "e", arms(before)), Assigner(SECRET, "e", arms(after))
    changed = sum(old.choose(unit) != new.choose(unit) for unit in UNITS)
    assert within(changed, len(UNITS), moved)


def test_a_new_arm_takes_only_its_share() -> None:
    old, new = Assigner(SECRET, "e", arms([50, 50])), Assigner(SECRET, "e", arms([50, 50, 25]))
    moved = {(old.choose(unit), new.choose(unit)) for unit in UNITS}
    assert moved == {(0, 0), (1, 1), (0, 2), (1, 2)}


def test_the_order_of_the_arms_has_no_influence() -> None:
    forth = Assigner(SECRET, "e", [("a", 30), ("b", 70)])
    back = Assigner(SECRET, "e", [("b", 70), ("a", 30)])
    assert all(forth.choose(unit) == 1 - back.choose(unit) for unit in UNITS)


@pytest.mark.parametrize("other", [(b"another secret", "e"), (SECRET, "f")])
def test_another_secret_or_experiment_splits_independently(other: tuple[bytes, str]) -> None:
    one, two = Assigner(SECRET, "e", arms([50, 50])), Assigner(*other, arms([50, 50]))
    agree = sum(one.choose(unit) == two.choose(unit) for unit in UNITS)
    assert within(agree, len(UNITS), 0.5)


def test_without_any_weight_there_is_nothing_to_choose() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Assigner(SECRET, "e", arms([0, 0]))


@given(st.text(st.characters(max_codepoint=255), max_size=100))
def test_no_cookie_header_raises(text: str) -> None:
    value = cookie_value(Headers([("cookie", text)]), "sid")
    assert value is None or value in text
