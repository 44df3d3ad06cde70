"""Policies edited while requests flow: in effect within a second, for stored answers too, and no request fails."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest
from policy_sets import POLICIES, policies
from running_mesh import PATIENCE, POLL, eventually, steady_load, verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.alone]

IN_EFFECT_WITHIN = 1.0
"""Seconds from the edit to the first answer by the new policies, and to the last by the old ones."""
BRIEF = policies("freshness: {maxTtl: 50s}")
BRIEF_AND_STALE = policies("freshness: {maxTtl: 50s, staleWhileRevalidate: 1h}")

AGED = [("cache-control", "max-age=600"), ("age", "100"), ("etag", '"1"')]
"""Fresh for 500 seconds more, by the origin; stale under a `maxTtl` of 50 seconds."""


async def aged(asked, wire):
    """An origin that keeps to what it said: the same, or 304 to who has it."""
    await wire.send(reply(304, AGED) if asked.get("if-none-match") else reply(200, AGED, b"body"))


def in_place(folder: Path, text: str) -> None:
    with (folder / "policies.yaml").open("w") as file:
        for line in text.splitlines(keepends=True):
            file.write(line)


def by_rename(folder: Path, text: str) -> None:
    (folder / ".policies.yaml.new").write_text(text)
    (folder / ".policies.yaml.new").rename(folder / "policies.yaml")


def by_config_map(folder: Path, text: str) -> None:
    """As the kubelet does it: a new folder, and a symlink `..data` that is swapped to it in one step."""
    number = len(list(folder.glob("..version-*")))
    version = folder / f"..version-{number}"
    version.mkdir()
    (version / "policies.yaml").write_text(text)
    _link(folder / "..data", version.name)
    if not (folder / "policies.yaml").is_symlink():
        _link(folder / "policies.yaml", "..data/policies.yaml")


def _link(path: Path, target: str) -> None:
    temporary = path.with_name(path.name + "_tmp")
    temporary.symlink_to(target)
    temporary.rename(path)


EDITS = {"in place": in_place, "by rename": by_rename, "by a ConfigMap's swap": by_config_map}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
async def test_an_edit_is_in_effect_within_a_second_for_what_is_stored_and_fails_no_request(pair, origin, name, edit):
    path = f"/plain/{name}"

    async def took() -> tuple[float, float]:
        """Seconds until the first answer by the new policies, and until the last by the old ones."""
        await pair.put_policies(POLICIES)
        origin.script(path, aged)
        if edit is by_config_map:
            edit(pair.policies, POLICIES)
        assert await pair.settled(path)
        async with steady_load(pair, name) as seen:
            await asyncio.sleep(0.2)
            edited = time.monotonic()
            edit(pair.policies, BRIEF)
            last_hit = first_stale = 0.0
            while not first_stale or time.monotonic() < edited + 2 * IN_EFFECT_WITHIN:
                answer = await pair.get(path)
                assert (answer.status_code, answer.content) == (200, b"body")
                if verdict(answer).hit:
                    last_hit = time.monotonic()
                elif not first_stale:
                    first_stale = time.monotonic()
                assert time.monotonic() < edited + PATIENCE, pair.log
                await asyncio.sleep(POLL)

            async def a_load() -> bool:
                return seen.total() > 50

            assert await eventually(a_load)
        assert set(seen) == {"right"}
        return first_stale - edited, last_hit - edited

    # The best of three: others may want the machine, too.
    for _ in range(3):
        seconds = await took()
        if max(seconds) < IN_EFFECT_WITHIN:
            return
    pytest.fail(f"{seconds} s")


async def test_a_longer_lifetime_counts_for_what_is_stored_too(pair, origin, path):
    await pair.put_policies(BRIEF)
    origin.script(path, aged)
    for _ in range(4):
        assert not verdict(await pair.get(path)).hit
    assert origin.count(path) == 4
    await pair.put_policies(POLICIES)
    assert await pair.settled(path)
    assert origin.count(path) == 4


async def test_what_a_shorter_lifetime_made_stale_may_be_served_while_it_is_refreshed(pair, origin, path):
    origin.script(path, reply(200, AGED, b"old"))
    assert await pair.settled(path)
    await pair.put_policies(BRIEF_AND_STALE)
    origin.script(path, reply(200, [("cache-control", "max-age=600")], b"new"))
    answer = await pair.get(path)
    assert verdict(answer).hit
    assert verdict(answer).ttl < 0
    assert answer.content == b"old"
    assert await pair.settled(path, body=b"new")
    assert origin.count(path) == 1


async def test_a_swap_flushes_nothing_that_stays_valid(pair, origin, path):
    assert await pair.settled(path)
    fetched = origin.count(path)
    await pair.put_policies(BRIEF)
    await pair.put_policies(POLICIES)
    for _ in range(6):
        assert verdict(await pair.get(path)).hit
    assert origin.count(path) == fetched


BROKEN = {
    "a wrong value": (policies("freshness: {maxTtl: soon}"), "maxTtl"),
    "an unknown field": (policies("freshnes: {}"), "freshnes"),
    "no YAML": (policies("freshness: ]"), "freshness"),
}


@pytest.mark.parametrize(("text", "field"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_edit_keeps_the_last_good_set_and_is_named(pair, origin, path, text, field):
    assert await pair.settled(path)
    before = await pair.status()
    refusals = await pair.metric("policy_refusals_total")
    in_place(pair.policies, text)

    async def refused():
        return (await pair.status())["policies"]["refusal"]

    errors = (await eventually(refused))["errors"]
    file, line, _column, _field, said = errors[0].split(":", 4)
    assert file == str(pair.policies / "policies.yaml")
    assert field in text.splitlines()[int(line) - 1]
    assert said

    answer = await pair.get(path)
    assert verdict(answer).hit
    assert verdict(answer).policy == "plain"
    assert (await pair.status())["policies"]["generation"] == before["policies"]["generation"]

    async def counted():
        return await pair.metric("policy_refusals_total") == refusals + 1

    assert await eventually(counted)
    await pair.put_policies(BRIEF)
    assert (await pair.status())["policies"]["refusal"] is None


async def test_the_status_command_names_a_broken_edit_and_fails(pair):
    in_place(pair.policies, BROKEN["a wrong value"][0])

    async def refused():
        return (await pair.status())["policies"]["refusal"]

    assert await eventually(refused)
    code, said = await _status_command(pair)
    assert code == 1
    assert "policies.yaml:" in said["policies"]["refusal"]["errors"][0]
    assert [item["type"] for item in said["conditions"] if not item["status"]]
    await pair.put_policies(POLICIES)
    code, said = await _status_command(pair)
    assert code == 0
    assert said["policies"]["refusal"] is None


async def _status_command(mesh):
    command = [str(Path(sys.executable).with_name("meshcache")), "status", "--json", "--data", str(mesh.data)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return process.returncode, json.loads(said)


async def test_a_folder_that_vanishes_and_comes_back(pair, origin, path):
    assert await pair.settled(path)
    aside = pair.policies.with_name("aside")
    pair.policies.rename(aside)

    async def refused():
        return (await pair.status())["policies"]["refusal"]

    try:
        assert await eventually(refused)
        assert verdict(await pair.get(path)).hit
    finally:
        aside.rename(pair.policies)

    async def taken():
        return (await pair.status())["policies"]["refusal"] is None

    assert await eventually(taken)
    await pair.put_policies(BRIEF)
