"""Both stores of decisions: who leads, what is refused, what is put back."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.exceptions import ResponseError

from fixtures_valkey import LocalValkey
from meshcache.experiment.overlay import Phase
from meshcache.experiment.state import Record
from meshcache.tiers.decision_file import DecisionFile
from meshcache.tiers.decision_redis import DecisionRedis
from meshcache.tiers.decision_store import DecisionStore, StoreError
from meshcache.tiers.redis import RedisTier
from meshcache.tiers.signing import Keyring, KeyringError

KEYRING = Keyring([b"k" * 32], b"a" * 32)


def keys() -> Keyring:
    return KEYRING


Open = Callable[[], DecisionStore]


def record(version: int = 1, name: str = "e", phase: Phase = Phase.RUNNING, absent: float = 0.0) -> Record:
    return Record(
        name=name,
        uid=name,
        spec_hash="h",
        route="r",
        arms=("control", "candidate"),
        phase=phase,
        weights=(1, 1),
        epoch=7,
        counting=True,
        stage=0,
        started=1.0,
        stage_since=1.0,
        version=version,
        absent=absent,
    )


@pytest.fixture(params=["file", "redis"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the store as one more process would."""
    if request.param == "file":
        yield lambda: DecisionFile(tmp_path / "experiments.json")
        return
    valkey: LocalValkey = request.getfixturevalue("valkey")
    async with contextlib.AsyncExitStack() as stack:

        def connect() -> DecisionRedis:
            client = RedisTier(valkey.unix_url)
            stack.push_async_callback(client.close)
            return DecisionRedis(client.send, client.where, keys)

        yield connect


async def test_one_leads_and_keeps_its_token(opened: Open) -> None:
    one, other = opened(), opened()
    token = await one.lead(3.0)
    assert token
    assert await other.lead(3.0) is None
    assert await one.lead(3.0) == token
    await one.step_down()
    theirs = await other.lead(3.0)
    assert theirs
    assert theirs != token
    assert await one.lead(3.0) is None
    await one.step_down()
    assert await other.lead(3.0) == theirs


async def test_whoever_has_been_overtaken_writes_nothing(opened: Open) -> None:
    one, other = opened(), opened()
    token = await one.lead(0.05)
    assert await one.write(record(1), token)
    await asyncio.sleep(0.06)
    # Nobody has taken its place, so it may go on.
    assert await one.write(record(2), token)
    theirs = await other.lead(3.0)
    assert theirs
    assert not await one.write(record(3, phase=Phase.PROMOTED), token)
    assert await other.write(record(3), theirs)
    assert not await one.write(record(4), token)
    assert not await one.forget(record(3), token or "")
    assert (await one.read()).records == {"e": record(3)}


async def test_only_who_has_seen_the_newest_version_may_follow_it(opened: Open) -> None:
    one, other = opened(), opened()
    token = await one.lead(3.0)
    assert not await one.write(record(2), token)
    assert await one.write(record(1), token)
    # A person, from another pod.
    assert await other.write(record(2, phase=Phase.ROLLED_BACK), None)
    assert not await one.write(record(2, phase=Phase.PROMOTED), token)
    assert not await other.write(record(2), None)
    assert (await one.read()).records["e"].phase is Phase.ROLLED_BACK
    assert await one.write(record(3), token)
    assert (await other.read()).records["e"].version == 3


async def test_what_is_offered_takes_the_place_of_what_is_older(opened: Open) -> None:
    one = opened()
    await one.offer([record(5), record(2, "f")])
    await one.offer([record(4), record(3, "f")])
    found = (await one.read()).records
    assert {name: each.version for name, each in found.items()} == {"e": 5, "f": 3}
    token = await one.lead(3.0)
    assert await one.write(record(6), token)


async def test_what_nobody_names_any_more_is_forgotten(opened: Open) -> None:
    one = opened()
    token = await one.lead(3.0) or ""
    await one.offer([record(5)])
    assert not await one.forget(record(4), token)
    assert await one.forget(record(5), token)
    assert (await one.read()).records == {}
    assert await one.write(record(1), token)


async def test_who_waits_hears_of_a_change(opened: Open) -> None:
    one, other = opened(), opened()
    await one.read()
    began = asyncio.get_running_loop().time()
    waiting = asyncio.create_task(one.wait(5.0))
    await asyncio.sleep(0.05)
    await other.offer([record()])
    await waiting
    assert asyncio.get_running_loop().time() - began < 4.0
    assert (await one.read()).records == {"e": record()}
    await one.wait(0.05)


async def test_of_many_who_write_at_once_one_succeeds(opened: Open) -> None:
    stores = [opened() for _ in range(8)]
    for version in range(1, 6):
        done = await asyncio.gather(*(store.write(record(version), None) for store in stores))
        assert sum(done) == 1


async def test_the_incarnation_tells_whether_data_were_lost(opened: Open) -> None:
    one, other = opened(), opened()
    await one.offer([record()])
    first = (await one.read()).incarnation
    assert first
    assert (await other.read()).incarnation == first


async def test_a_store_that_has_lost_its_data_is_another_one(valkey: LocalValkey) -> None:
    client = RedisTier(valkey.unix_url)
    store = DecisionRedis(client.send, client.where, keys)
    token = await store.lead(3.0)
    await store.write(record(), token)
    first = await store.read()
    with valkey.client() as direct:
        direct.flushall()
    lost = await store.read()
    assert (lost.records, lost.incarnation == first.incarnation) == ({}, False)
    # The token of before is nobody's now.
    assert not await store.write(record(1, phase=Phase.PROMOTED), token)
    await store.offer([record(9)])
    assert (await store.read()).records == {"e": record(9)}
    await client.close()


def name_of(valkey: LocalValkey, part: str) -> str:
    with valkey.client() as client:
        (found,) = client.keys(f"mc1:{{x*}}:{part}")
    return str(found.decode())


async def test_records_alone_may_be_evicted_and_come_back(valkey: LocalValkey) -> None:
    client = RedisTier(valkey.unix_url)
    store = DecisionRedis(client.send, client.where, keys)
    await store.offer([record(5)])
    with valkey.client() as direct:
        direct.delete(name_of(valkey, "records"))
    assert (await store.read()).records == {}
    await store.offer([record(5)])
    assert (await store.read()).records == {"e": record(5)}
    await client.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value.replace(b"Running", b"Stopped"),
        lambda value: value.replace(b"5 ", b"6 ", 1),
        lambda value: value[:20],
        lambda _: b"5 ",
        lambda _: b"",
    ],
)
async def test_what_nobody_with_our_keys_has_written_is_not_believed(
    valkey: LocalValkey, spoil: Callable[[bytes], bytes]
) -> None:
    client = RedisTier(valkey.unix_url)
    store = DecisionRedis(client.send, client.where, keys)
    await store.offer([record(5), record(1, "f")])
    name = name_of(valkey, "records")
    with valkey.client() as direct:
        for field, value in direct.hgetall(name).items():
            if b'"name":"e"' in value:
                direct.hset(name, field, spoil(value))
                direct.xadd(name_of(valkey, "changes"), {"n": "x"})
    assert list((await store.read()).records) == ["f"]
    # And what was there cannot be passed off as another experiment's.
    with valkey.client() as direct:
        ours = direct.hgetall(name)
        one, other = ours
        direct.hset(name, mapping={one: ours[other], other: ours[one]})
        direct.xadd(name_of(valkey, "changes"), {"n": "x"})
    assert (await store.read()).records == {}
    await client.close()


async def test_installations_of_different_secrets_decide_for_themselves(valkey: LocalValkey) -> None:
    client = RedisTier(valkey.unix_url)
    one = DecisionRedis(client.send, client.where, keys)
    other = DecisionRedis(client.send, client.where, lambda: Keyring([b"k" * 32], b"b" * 32))
    assert await one.lead(3.0)
    assert await other.lead(3.0)
    await one.offer([record(5)])
    assert (await other.read()).records == {}
    assert await other.write(record(1), None)
    assert (await one.read()).records == {"e": record(5)}
    await client.close()


async def test_keys_that_cannot_be_read_are_told_in_a_line(valkey: LocalValkey) -> None:
    def broken() -> Keyring:
        raise KeyringError("/keys: no")

    client = RedisTier(valkey.unix_url)
    with pytest.raises(StoreError, match="the keys of this installation cannot be read: /keys: no"):
        await DecisionRedis(client.send, client.where, broken).lead(3.0)
    await client.close()


ANYTHING = [
    b"OK",
    5,
    None,
    [],
    [3],
    [[]],
    [[1, 2]],
    {b"a": 2},
    {3: b"x"},
    b"\xff",
    True,
    1.5,
    [[b"x"]],
    ResponseError("no"),
]


@pytest.mark.parametrize("answer", ANYTHING, ids=repr)
async def test_a_store_that_answers_something_else_is_told_in_a_line_at_most(answer: Any) -> None:
    async def send(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [answer] * len(commands)

    async def fail(_commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        raise TypeError("'int' object is not subscriptable")

    store = DecisionRedis(send, "redis://x", keys)
    assert (await store.read()).records == {}
    assert not isinstance(await store.lead(3.0), int)
    assert await store.write(record(), "1-x") in (True, False)
    await store.offer([record()])
    await store.wait(0.01)
    with pytest.raises(StoreError, match="redis://x: the store answers something else: TypeError"):
        await DecisionRedis(fail, "redis://x", keys).read()


async def test_a_store_that_is_away_is_told_in_a_line(valkey: LocalValkey) -> None:
    client = RedisTier(valkey.url)
    store = DecisionRedis(client.send, client.where, keys, patience=1.0)
    await store.read()
    valkey.freeze()
    with pytest.raises(StoreError, match=r"redis://127.0.0.1:\d+: the store does not answer in time"):
        await store.read()
    valkey.kill()
    with pytest.raises(StoreError, match="the store cannot be reached"):
        await store.lead(3.0)
    await client.close()


async def test_the_file_outlives_the_process_and_holds_no_half_of_anything(tmp_path: Path) -> None:
    path = tmp_path / "experiments.json"
    one = DecisionFile(path)
    token = await one.lead(3.0)
    await one.write(record(), token)
    assert DecisionFile(path).load() == {"e": record()}
    assert json.loads(path.read_text())["records"]["e"]["phase"] == "Running"
    assert sorted(os.listdir(tmp_path)) == ["experiments.json", "experiments.json.lock"]
    before = path.stat().st_mtime_ns
    # A lease that is renewed every second must not cost a write to the disk.
    assert await one.lead(3.0) == token
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, '{"records": 5}', "\udcff"])
async def test_a_file_that_holds_something_else_is_set_aside_and_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "experiments.json"
    path.write_text(content, errors="surrogateescape")
    told: list[Path] = []
    one = DecisionFile(path, set_aside=told.append)
    assert (await one.read()).records == {}
    assert told == [tmp_path / "experiments.json.broken"]
    assert told[0].read_text(errors="surrogateescape") == content
    token = await one.lead(3.0)
    assert await one.write(record(), token)
    assert DecisionFile(path).load() == {"e": record()}
    assert len(told) == 1


async def test_a_file_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "experiments.json"
    one = DecisionFile(path)
    token = await one.lead(3.0)
    await one.write(record(phase=Phase.ROLLED_BACK), token)
    before = path.read_bytes()

    def exhausted(_path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", exhausted)
        for call in (DecisionFile(path).read, lambda: one.lead(3.0), lambda: one.offer([record(name="f")])):
            with pytest.raises(StoreError, match="Too many open files"):
                await call()
        with pytest.raises(StoreError, match="Too many open files"):
            DecisionFile(path).load()
    assert path.read_bytes() == before


@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EROFS])
async def test_a_disk_that_takes_no_more_keeps_nobody_from_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: int
) -> None:
    path = tmp_path / "experiments.json"
    told: list[OSError | None] = []
    one = DecisionFile(path, unsaved=told.append)
    token = await one.lead(3.0)
    assert await one.write(record(), token)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(trouble, os.strerror(trouble))

    with monkeypatch.context() as patched:
        patched.setattr("meshcache.tiers.decision_file.replace_file", full)
        rolled_back = record(2, phase=Phase.ROLLED_BACK)
        assert await one.write(rolled_back, token)
        assert not await one.write(rolled_back, token)
        assert (await one.read()).records == {"e": rolled_back}
        assert await one.lead(3.0) == token
        assert await one.write(record(3), None)
        assert path.read_bytes() == before
        assert [error and error.errno for error in told] == [trouble]
    assert await one.lead(3.0) == token
    assert DecisionFile(path).load() == {"e": record(3)} == (await one.read()).records
    assert told[1:] == [None]


async def test_what_another_process_has_written_counts_before_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "experiments.json"
    one, other = DecisionFile(path), DecisionFile(path)
    await one.offer([record()])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("meshcache.tiers.decision_file.replace_file", full)
        assert await one.write(record(2), None)
    assert (await other.read()).records == {"e": record()}
    assert await other.write(record(2, phase=Phase.STOPPED), None)
    assert (await one.read()).records == {"e": record(2, phase=Phase.STOPPED)}


async def test_what_the_file_holds_of_a_newer_release_does_not_spoil_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "experiments.json"
    one = DecisionFile(path)
    await one.offer([record(), record(name="f")])
    path.write_text(path.read_text().replace('"name":"e"', '"name":5'))
    assert list(DecisionFile(path).load()) == ["f"]
    await one.offer([record(name="g")])
    assert '"name":5' in path.read_text()


async def test_who_was_stopped_with_the_lock_in_its_hand_holds_up_nobody_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshcache.tiers.decision_file._PATIENCE", 0.1)
    one, other = DecisionFile(tmp_path / "e.json"), DecisionFile(tmp_path / "e.json")
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with one._locked():
            held.set()
            let_go.wait(5)

    stopped = asyncio.create_task(asyncio.to_thread(hold))
    await asyncio.to_thread(held.wait)
    with pytest.raises(StoreError, match="another process keeps it locked"):
        await other.lead(3.0)
    let_go.set()
    await stopped
    assert await other.lead(3.0)


async def test_the_clock_of_the_machine_may_be_set_back(tmp_path: Path) -> None:
    now = [1e9]
    one = DecisionFile(tmp_path / "e.json", clock=lambda: now[0])
    other = DecisionFile(tmp_path / "e.json", clock=lambda: now[0])
    assert await one.lead(3.0)
    now[0] -= 1e6
    assert await other.lead(3.0)
    assert msgspec.json.decode((tmp_path / "e.json").read_bytes())["terms"] == 2
