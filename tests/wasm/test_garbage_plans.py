"""Whatever a plan or a header list is made of, the filter refuses it or goes on by it: nothing traps, nothing hangs."""

from __future__ import annotations

import os
from random import Random
from typing import Final

import pytest
from filter_rules import MALFORMED, Rules, header_list, needs_rules, serialised
from hypothesis import given, settings
from hypothesis import strategies as st
from random_policies import Maker

from meshcache.message import Request
from meshcache.wasm.plan import PlanSettings, encode

pytestmark = needs_rules

SETTINGS: Final = PlanSettings(secret=bytes(32), lease=10.0, budget=1 << 24, largest=1 << 20)
PLANS: Final = int(os.environ.get("VECTOR_PLANS") or 40) // 2
DAMAGES: Final = 60
"""Of each plan."""
# A number that is larger than it should be is what leads astray.
TELLING: Final = (0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF)


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules()


def damaged(data: bytes, random: Random) -> bytes:
    """`data`, changed in a few places, cut off, or with a piece of it in another place."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(made) + 1)
        kind = random.random()
        if kind < 0.7 and at < len(made):
            made[at] = random.choice(TELLING) if kind < 0.5 else random.randrange(256)
        elif kind < 0.8:
            piece = random.randrange(len(made) + 1)
            made[at:at] = made[piece : piece + random.randrange(64)]
        elif kind < 0.9:
            del made[at : at + random.randrange(64)]
        else:
            del made[at:]
    return bytes(made)


@settings(max_examples=PLANS, deadline=None)
@given(seed=st.integers(0, 2**64 - 1))
def test_damaged_plans_are_refused_or_harmless(rules: Rules, seed: int) -> None:
    random = Random(seed)
    maker = Maker(random)
    plan = encode(maker.snapshot(), SETTINGS)
    requests = [header_list(maker.request()) for _ in range(5)]
    for _ in range(DAMAGES):
        rules.load(damaged(plan, random))
        for request in requests:
            rules.decide(request, address="10.0.0.1:80", cluster="c")


def test_no_part_of_a_plan_is_a_plan(rules: Rules) -> None:
    plan = encode(Maker(Random(7)).snapshot(), SETTINGS)
    assert rules.load(plan)
    assert not rules.load(plan + b"\0")
    for length in range(len(plan)):
        assert not rules.load(plan[:length])


@settings(max_examples=PLANS, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_anything_for_header_lists(rules: Rules, data: bytes, seed: int) -> None:
    random = Random(seed)
    rules.load(encode(Maker(random).snapshot(), SETTINGS))
    rules.decide(data)
    rules.decide(damaged(header_list(Maker(random).request()), random))


def test_more_fields_than_the_filter_looks_at(rules: Rules) -> None:
    assert rules.decide(header_list(Request("GET", "h", "/"))).what != MALFORMED
    assert rules.decide(serialised([("x", "")] * 129)).what == MALFORMED
