"""Assignment to arms: sticky, by weight, moving no more than it must."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshcache.experiment.assignment import Assigner, cookie_value
from meshcache.experiment.ledger import BUCKETS
from meshcache.experiment.stages import WHOLE, stage_weights
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


@given(st.lists(st.text(st.sampled_from("uidxa=; \t"), max_size=12), max_size=3), st.sampled_from(["uid", "u", "id"]))
@example(["uid; uid=5"], "uid")
@example(["uid=; uid=5"], "uid")
@example(["xuid=1;\t uid=2;uid=3"], "uid")
def test_a_cookie_is_what_all_of_them_together_say(lines: list[str], name: str) -> None:
    headers = Headers([("cookie", line) for line in lines])
    expected = next((value for key, value in headers.cookies() if key == name), None) or None
    assert cookie_value(headers, name) == expected


@given(st.text(st.characters(max_codepoint=255), max_size=100))
def test_no_cookie_header_raises(text: str) -> None:
    value = cookie_value(Headers([("cookie", text)]), "sid")
    assert value is None or value in text


def bucket_of(digest: bytes) -> int:
    """As the ledger has it."""
    return int.from_bytes(digest[:2], "big") % BUCKETS


steps = st.lists(st.integers(1, 500_000), min_size=2, max_size=2, unique=True).map(sorted)


@given(steps, st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=20, deadline=None)
def test_a_step_of_a_ramp_moves_units_of_control_alone(step: list[int], one: int, other: int) -> None:
    """Candidate and baseline grow, and further arms stay, as long as there is room for all."""
    written = [400, 100, one, 100, other]
    names = arms(written)
    before, after = (stage_weights(written, 1, 3, share / WHOLE) for share in step)
    assert sum(before) == sum(after) == WHOLE
    assert before[1] == before[3] == step[0]
    assert after[1] == after[3] == step[1]
    old, new = (
        Assigner(SECRET, "e", [(name, weight) for (name, _), weight in zip(names, weights, strict=True)], (0, 1, 3))
        for weights in (before, after)
    )
    room = WHOLE - 2 * step[1] >= (one + other) * WHOLE // sum(written)
    for unit in UNITS[:1000]:
        source, target = old.choose(unit), new.choose(unit)
        if source != target and room:
            assert source == 0
            assert target in (1, 3)


def test_a_stage_of_half_a_percent_is_half_a_percent() -> None:
    assert stage_weights((80, 10, 10), 1, 2, 0.005) == (990_000, 5_000, 5_000)
    assigner = Assigner(SECRET, "e", arms([80, 10, 10]), (0, 1, 2)).weighted((990_000, 5_000, 5_000))
    units = [b"%d" % number for number in range(60_000)]
    counts = [0, 0, 0]
    for unit in units:
        counts[assigner.choose(unit)] += 1
    assert within(counts[1], len(units), 0.005)
    assert within(counts[2], len(units), 0.005)


def test_further_arms_make_room_when_there_is_none() -> None:
    assert stage_weights((70, 10, 10, 10), 1, 2, 0.5) == (0, 500_000, 500_000, 0)
    assert stage_weights((50, 50), 1, 0, 0.25) == (750_000, 250_000)


def test_the_bucket_of_a_unit_says_nothing_of_its_arm() -> None:
    assigner = Assigner(SECRET, "e", arms([50, 50]))
    table = [[0, 0] for _ in range(64)]
    for number in range(40_000):
        digest = assigner.digest(b"%d" % number)
        table[bucket_of(digest) % 64][assigner.pick(digest)] += 1
    columns = [sum(row[arm] for row in table) for arm in (0, 1)]
    expected = [[sum(row) * column / sum(columns) for column in columns] for row in table]
    chi = sum(
        (found - due) ** 2 / due
        for row, dues in zip(table, expected, strict=True)
        for found, due in zip(row, dues, strict=True)
    )
    # 63 degrees of freedom: above 120 once in 20,000 tries, were the two independent.
    assert chi < 120
    assert len({bucket_of(assigner.digest(b"%d" % number)) for number in range(20_000)}) == BUCKETS
