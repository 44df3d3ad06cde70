"""Purges of all that belongs to one person, through real Envoy with its JWT filter."""

from __future__ import annotations

import pytest
import pytest_asyncio
from purge_races import Admin
from running_mesh import verdict
from test_attacks import ALICE, EVE, keep, running, secret
from tokens import SECOND, bearer

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(make_folder, origin):
    async with running(make_folder(), origin) as mesh:
        yield mesh


async def test_what_belongs_to_one_person_goes_in_all_routes_and_tiers(guarded, origin, name):
    paths = [f"/{route}/{name}" for route in ("person", "own")]
    for path in paths:
        await keep(guarded, origin, path)
        await keep(guarded, origin, path, EVE)
    await keep(guarded, origin, f"/open/{name}")
    admin = Admin(guarded)
    assert (await admin.counted(await admin.purge(subjects=["nobody"])))["entries"] == 0
    result = await admin.counted(await admin.purge(subjects=["alice"]))
    assert (result["pending"], result["entries"], result["counted"]) == ([], 2, True)
    for path in paths:
        assert not verdict(await guarded.get(path, bearer(*ALICE))).hit
        mine = await guarded.get(path, bearer(*EVE))
        assert (verdict(mine).hit, mine.content) == (True, secret(*EVE))
    # What is for everybody is nobody's, whoever asked for it.
    assert verdict(await guarded.get(f"/open/{name}", bearer(*ALICE))).hit
    await admin.close()


async def test_a_name_is_purged_under_every_issuer(guarded, origin, name):
    path = f"/own/{name}"
    await keep(guarded, origin, path)
    other = bearer(*ALICE, issuer=SECOND)
    assert not verdict(await guarded.get(path, other)).hit
    assert verdict(await guarded.get(path, other)).hit
    admin = Admin(guarded)
    assert (await admin.counted(await admin.purge(subjects=["alice"])))["entries"] >= 2
    for headers in (bearer(*ALICE), other):
        assert not verdict(await guarded.get(path, headers)).hit
    await admin.close()
