"""Experiments and scores through the front door: who gets which arm and tier, and whose word counts."""

from __future__ import annotations

import httpx
import pytest
import pytest_asyncio
from running_mesh import eventually, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")
FORGED = [
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-for": "10.0.0.1, 127.0.0.1", "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1"},
    {"x-envoy-external-address": "127.0.0.1", "x-envoy-original-dst-host": "127.0.0.1:1"},
]


@pytest_asyncio.fixture(loop_scope="session")
async def stranger(mesh):
    """A client whose address `trust` does not name."""
    transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx.AsyncClient(base_url=mesh.base, transport=transport, timeout=20) as client:
        yield client


@pytest.fixture
def tested(name):
    """A path of this test's own, on the route under experiment."""
    return f"/tested/{name}"


async def test_a_trusted_caller_chooses_its_arm(mesh, origin, tested):
    for expected in (False, True):
        forced = await mesh.get(tested, {"x-canary": "v2"})
        assert verdict(forced).hit is expected
        assert verdict(forced).arm == "candidate"
        assert verdict(forced).policy == "stale"
        usual = await mesh.get(tested)
        assert verdict(usual).hit is expected
        assert verdict(usual).arm == "control"
        assert verdict(usual).policy == "plain"
    assert origin.count(tested) == 2
    # Separate storage: each arm has what it fetched itself.
    assert (await mesh.get(tested, {"x-canary": "v2"})).text == f"{tested} 1"
    assert (await mesh.get(tested)).text == f"{tested} 2"


@pytest.mark.parametrize("value", ["v1", "V2", "", "v2, v2", "v2 x"])
async def test_another_value_chooses_nothing(mesh, tested, value):
    assert verdict(await mesh.get(tested, {"x-canary": value})).arm == "control"


async def test_two_lines_of_the_header_choose_nothing(mesh, tested):
    answer = await mesh.get(tested, [("x-canary", "v2"), ("x-canary", "v3")])
    assert verdict(answer).arm == "control"


@pytest.mark.parametrize("forged", [{}, *FORGED], ids=["", "xff", "all kinds", "envoy's"])
async def test_a_stranger_chooses_nothing_whatever_he_says(mesh, stranger, tested, forged):
    answer = await stranger.get(tested, headers={"x-canary": "v2", **forged})
    assert verdict(answer).arm == "control"


@pytest.mark.parametrize("forged", [{}, *FORGED], ids=["", "xff", "all kinds", "envoy's"])
async def test_a_stranger_has_no_score_whatever_he_says(stranger, name, forged):
    path = f"/placed/{name}"
    for _ in range(2):
        answer = await stranger.get(path, headers={"x-user-score": "0.1", **forged})
    # Without a score he is treated as the best: kept in memory, not sent to the cold tier.
    assert verdict(answer).tier == "hot"


async def test_a_user_stays_in_his_arm(mesh, tested):
    arms = {}
    for user in range(30):
        seen = {
            verdict(await mesh.get(tested, {"x-user-id": f"user-{user}"})).arm for _ in range(20 if not user else 3)
        }
        assert len(seen) == 1
        arms[user] = seen.pop()
    # Half and half: that all thirty fall on one side happens once in 500 million.
    assert set(arms.values()) == {"control", "candidate"}


async def test_a_trusted_caller_may_leave_his_users_arm(mesh, tested):
    for user in range(10):
        answer = await mesh.get(tested, {"x-user-id": f"user-{user}", "x-canary": "v2"})
        assert verdict(answer).arm == "candidate"


async def test_a_change_is_known_to_every_arm(mesh, origin, tested):
    arms = ({"x-canary": "v2"}, {})
    for headers in arms:
        await mesh.get(tested, headers)
        assert verdict(await mesh.get(tested, headers)).hit
    await mesh.get(tested, method="POST")
    for headers in arms:
        assert not verdict(await mesh.get(tested, headers)).hit
    assert origin.count(tested) == 5


@pytest.mark.parametrize(("score", "tier"), [("0.9", "hot"), ("0.7", "hot"), ("0.5", "warm"), ("0.1", "cold")])
async def test_the_score_decides_where_an_answer_is_kept(mesh, origin, name, score, tier):
    path = f"/placed/{name}"
    await mesh.get(path, {"x-user-score": score})
    hit = await eventually(lambda: mesh.hit(path, {"x-user-score": score}))
    assert verdict(hit).tier == tier
    # And there it stays for callers of this kind.
    again = await mesh.get(path, {"x-user-score": score})
    assert verdict(again).tier == tier


@pytest.mark.parametrize(
    ("score", "tier"),
    [("2", "hot"), ("-1", "cold"), ("nan", "hot"), ("inf", "hot"), ("0,1", "hot"), ("x" * 500, "hot")],
)
async def test_a_score_that_is_out_of_range_or_garbage(mesh, name, score, tier):
    path = f"/placed/{name[:80]}-{len(score)}"
    await mesh.get(path, {"x-user-score": score})
    hit = await eventually(lambda: mesh.hit(path, {"x-user-score": score}))
    assert verdict(hit).tier == tier


async def test_a_better_reader_moves_an_answer_up_and_a_worse_one_never_down(mesh, origin, name):
    path = f"/placed/{name}"

    async def tier_for(score):
        return verdict(await mesh.get(path, {"x-user-score": score})).tier

    await mesh.get(path, {"x-user-score": "0.1"})
    await eventually(lambda: mesh.hit(path, {"x-user-score": "0.1"}))
    fetched = origin.count(path)
    assert await tier_for("0.5") == "cold"  # found there, and moved up for the next

    async def warm():
        return await tier_for("0.5") == "warm"

    assert await eventually(warm)
    assert await tier_for("0.9") == "warm"
    assert await tier_for("0.9") == "hot"
    assert await tier_for("0.1") == "hot"
    assert origin.count(path) == fetched


async def test_scores_and_arms_do_not_tell_answers_apart_by_themselves(mesh, origin, name):
    path = f"/plain/{name}"
    origin.script(path, reply(200, [FRESH], b"x"))
    await mesh.get(path)
    for headers in ({"x-canary": "v2"}, {"x-user-id": "a"}, {"x-user-score": "0.1"}):
        assert verdict(await mesh.get(path, headers)).hit
    assert origin.count(path) == 1
