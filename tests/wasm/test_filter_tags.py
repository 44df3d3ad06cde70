"""Tags: what goes in comes out, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.experiment.exposure import CountedExperiment
from meshcache.wasm.tags import (
    MOST_TAG_BYTES,
    ExperimentTag,
    PlainTag,
    decode_experiment,
    decode_plain,
    encode_experiment,
    encode_plain,
)

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
COUNTED = st.builds(
    CountedExperiment,
    NAMES,
    NAMES,
    st.integers(0, (1 << 64) - 1),
    st.lists(NAMES, min_size=1, max_size=64).map(tuple),
    NAMES,
)


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_plain_tag_comes_back(route: str, arm: str, policy: str, missing: str) -> None:
    assert decode_plain(encode_plain(route, arm, policy, missing)) == PlainTag(route, arm, policy, missing)


@given(COUNTED, st.integers(0, 10**12))
def test_an_experiments_tag_comes_back(counted: CountedExperiment, micros: int) -> None:
    assert decode_experiment(encode_experiment(counted, micros / 1e6)) == ExperimentTag(counted, micros)


@given(
    st.binary(max_size=80),
    st.sampled_from((b"", b"P1", b"X1", encode_experiment(CountedExperiment("e", "", 1, ("a",))))),
)
def test_other_bytes_are_refused(tail: bytes, head: bytes) -> None:
    for decode, encode in ((decode_plain, encode_plain), (decode_experiment, None)):
        try:
            found = decode(head + tail)
        except ValueError:
            continue
        again = (
            encode(*found) if isinstance(found, PlainTag) and encode else encode_experiment(found[0], found[1] / 1e6)
        )
        assert again == head + tail or found[1] > 10**12


def test_what_is_cut_off_is_refused() -> None:
    for tag, decode in (
        (encode_plain("route", "arm", "policy"), decode_plain),
        (encode_experiment(CountedExperiment("e", "h", 3, ("a", "b"), "u"), 0.5), decode_experiment),
    ):
        for end in range(len(tag)):
            with pytest.raises(ValueError, match=r"tag|codec"):
                decode(tag[:end])
        with pytest.raises(ValueError, match=r"tag|codec"):
            decode(tag + b"\0")


@pytest.mark.parametrize(
    "counted",
    [
        CountedExperiment("e", "h", 1, ()),
        CountedExperiment("e", "h", 1, ("a",) * 65),
        CountedExperiment("e", "h", -1, ("a",)),
        CountedExperiment("e" * MOST_TAG_BYTES, "h", 1, ("a",)),
        CountedExperiment("\udc80", "h", 1, ("a",)),
    ],
)
def test_what_a_tag_cannot_say_is_refused(counted: CountedExperiment) -> None:
    with pytest.raises(ValueError, match=r"arms|epoch|too many|codec"):
        encode_experiment(counted)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0, 1e30])
def test_a_cost_that_is_none_is_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="no cost"):
        encode_experiment(CountedExperiment("e", "h", 1, ("a",)), cost)
