"""The cache behind other filters of Envoy: what they refuse or answer themselves, it neither answers nor stores."""

from __future__ import annotations

import pytest
import pytest_asyncio
from envoy_data_plane.envoy.config.rbac.v3 import Permission, Policy, Principal, RbacAction
from envoy_data_plane.envoy.config.rbac.v3 import Rbac as Rules
from envoy_data_plane.envoy.config.route.v3 import HeaderMatcher
from envoy_data_plane.envoy.extensions.filters.http.rbac.v3 import Rbac
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from own_envoy import behind_envoy
from running_mesh import verdict
from scripted_origin import reply

from meshcache.envoy.bootstrap import DirectResponse
from meshcache.envoy.render import pack

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ALICE, MALLORY = {"x-user": "alice"}, {"x-user": "mallory"}


def only_alice() -> HttpFilter:
    """Stands for authentication and authorization: whoever is not alice is refused."""
    header = HeaderMatcher(name="x-user", string_match=StringMatcher(exact="alice"))
    allowed = Policy(permissions=[Permission(any=True)], principals=[Principal(header=header)])
    rules = Rules(action=RbacAction.ALLOW, policies={"alice": allowed})
    return HttpFilter(name="envoy.filters.http.rbac", typed_config=pack(Rbac(rules=rules)))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(make_folder, origin):
    """`meshcache serve` behind an Envoy of the test's own, with RBAC in front and answers that Envoy gives itself."""
    direct = (DirectResponse("/greedy/gone", 404, "no route"), DirectResponse("/greedy/own", 200, "own"))
    async with behind_envoy(make_folder(), origin, filters_before=(only_alice(),), direct_responses=direct) as mesh:
        yield mesh


async def test_who_is_refused_without_the_cache_is_refused_with_it(guarded, origin, path):
    assert (await guarded.get(path, MALLORY)).status_code == 403
    filled = await guarded.get(path, ALICE)
    assert verdict(filled).stored
    hit = await guarded.get(path, ALICE)
    assert verdict(hit).hit
    for headers in (MALLORY, {}, {"x-user": "alice, mallory"}):
        for method in ("GET", "HEAD"):
            refused = await guarded.get(path, headers, method=method)
            assert refused.status_code == 403
            assert hit.content not in refused.content
            assert "cache-status" not in refused.headers
    assert verdict(await guarded.get(path, ALICE)).hit
    assert origin.count(path) == 1


async def test_a_refusal_is_not_stored(guarded, origin, name):
    # The policy gives 403 a lifetime.
    path = f"/greedy/{name}"
    assert (await guarded.get(path, MALLORY)).status_code == 403
    assert (await guarded.get(path, ALICE)).status_code == 200


async def test_who_is_refused_changes_nothing(guarded, path):
    await guarded.get(path, ALICE)
    assert (await guarded.get(path, MALLORY, method="POST")).status_code == 403
    assert verdict(await guarded.get(path, ALICE)).hit


@pytest.mark.parametrize(("path", "status"), [("/greedy/gone", 404), ("/greedy/own", 200)])
async def test_envoys_own_answers_are_not_stored(guarded, path, status):
    for _ in range(2):
        answer = await guarded.get(path, ALICE)
        assert answer.status_code == status
        assert not verdict(answer).hit
        assert not verdict(answer).stored


async def test_a_stale_answer_is_refreshed_past_the_filters_that_judge_clients(guarded, origin, name):
    path = f"/stale/{name}"
    stale, fresh = [("cache-control", "max-age=60"), ("age", "100")], [("cache-control", "max-age=60")]
    origin.script(path, reply(200, stale, b"old"), reply(200, fresh, b"new"))
    await guarded.get(path, ALICE)
    assert (await guarded.get(path, ALICE)).content == b"old"
    assert (await guarded.get(path, MALLORY)).status_code == 403
    assert await guarded.settled(path, ALICE, b"new")
    assert origin.asked(path)[1].get("x-user") is None
