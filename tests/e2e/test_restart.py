"""What outlives a restart, and what installations share: entries in the warm tier, if the keys are the same."""

from __future__ import annotations

import asyncio
import shutil

import pytest
import pytest_asyncio
from running_mesh import eventually, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

LIFETIME = ("cache-control", "max-age=600")
HOST = {"host": "shared.example"}
"""Part of the key, and otherwise another for each start, as each listens on a port of its own."""


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_the_warm_file_outlives_the_process(start_mesh, origin, name, end):
    path, varied, dropped = (f"/plain/{name}/{part}" for part in ("a", "varied", "dropped"))
    origin.script(varied, reply(200, [LIFETIME, ("vary", "accept")], b"varied"))
    mesh = await start_mesh()
    for target in (path, varied, dropped):
        await mesh.get(target, HOST | {"accept": "x"})
    hot = await mesh.get(path, HOST)
    assert verdict(hot).tier == "hot"

    async def written():
        # Four: the variant and the list that it is in are two.
        return await mesh.metric("request_stage_seconds_count", stage="store") >= 4

    assert await eventually(written)
    # Only now: a write that has not been made yet would be left out, and not be counted.
    await mesh.get(dropped, HOST, method="POST")
    await (mesh.stop() if end == "stop" else mesh.kill())
    origin.script(dropped, reply(200, [LIFETIME], b"new"))

    again = await start_mesh(folder=mesh.folder)
    fetched = origin.count(path)
    warm = await again.get(path, HOST)
    assert verdict(warm).tier == "warm"
    assert warm.content == hot.content
    assert int(warm.headers["age"]) >= int(hot.headers["age"])
    assert verdict(await again.get(path, HOST)).tier == "hot"
    assert origin.count(path) == fetched
    assert verdict(await again.get(varied, HOST | {"accept": "x"})).hit
    assert not verdict(await again.get(varied, HOST | {"accept": "y"})).hit
    assert (await again.get(dropped, HOST)).content == b"new"
    assert await again.metric("stream_errors_total") == 0
    await again.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def three(start_mesh, make_folder, valkey):
    """Three installations before one Valkey; the second has the keys of the first, the third has its own."""
    first = await start_mesh("--warm", valkey.url)
    folder = make_folder()
    (folder / "data").mkdir()
    shutil.copytree(first.data / "keys", folder / "data" / "keys")
    second, third = await asyncio.gather(
        start_mesh("--warm", valkey.url, folder=folder), start_mesh("--warm", valkey.url)
    )
    yield first, second, third
    for mesh in (first, second, third):
        await mesh.stop()


async def test_installations_share_a_valkey_as_far_as_they_share_keys(three, origin, name, valkey):
    first, second, third = three
    path, headers = f"/placed/{name}", HOST | {"x-user-score": "0.5"}  # by which answers are kept in warm alone
    origin.script(path, reply(200, [LIFETIME, ("x-mine", "1")], b"shared"))
    await first.get(path, headers)
    shared = await eventually(lambda: second.hit(path, headers))
    assert verdict(shared).tier == "warm"
    assert shared.content == b"shared"
    assert shared.headers["x-mine"] == "1"

    # A change at one is a change for all who share its entries.
    origin.script(path, reply(200, [LIFETIME], b"changed"))
    await first.get(path, headers, method="POST")

    async def known():
        return all([(await mesh.get(path, headers)).content == b"changed" for mesh in (first, second)])

    assert await eventually(known)
    assert await second.settled(path, headers, b"changed")

    # Another key: what the others wrote does not verify, which is a miss and no error.
    origin.script(path, reply(200, [LIFETIME], b"own"))
    own = await third.get(path, headers)
    assert (own.status_code, own.content) == (200, b"own")
    assert verdict(own).fwd == "uri-miss"
    assert await third.settled(path, headers, b"own")
    for mesh in three:
        assert (await mesh.get(path, headers)).status_code == 200
        assert await mesh.metric("stream_errors_total") == 0, mesh.log

    # No name in the store tells what was asked for.
    with valkey.client() as client:
        names = client.keys("*")
    assert names
    assert not [key for key in names if name.encode() in key or b"shared.example" in key]
