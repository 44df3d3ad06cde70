"""Sweeps after purges: what is found, what goes, and what stays."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tier_helpers import key, response

from meshcache.engine.epochs import Epochs
from meshcache.engine.purge_state import Header, PurgeState, Step, generation
from meshcache.engine.purges import Keying, PurgeKind, Rule
from meshcache.tiers.envelope import seal
from meshcache.tiers.lmdb_file import LmdbFile, Operation
from meshcache.tiers.object_folder import ObjectFolder
from meshcache.tiers.redis import RedisTier
from meshcache.tiers.signing import Keyring
from meshcache.tiers.sweeping import Sweeper, SweptFile, SweptFolder, SweptStore
from meshcache.tiers.threads import Threads

KEYRING = Keyring([b"k" * 32], b"s" * 32)
OWN, OTHER = 7, 8
LATER = time.time() + 3600


def rules(*tags: str, soft: bool = False, fleet: int = 50) -> PurgeState:
    state = PurgeState(Header(OWN, number=9), Keying())
    for number, tag in enumerate(tags, 10):
        state.apply(Step(number, Rule(PurgeKind.TAG, tag, soft, 1.0, tag), 1.0, fleet))
    return state


EARLIER = (generation(OWN, 5), 40)


def value(number: int, *tags: str, born=EARLIER, **more: object) -> bytes:
    epochs = Epochs(b"b" * 8, b"f" * 8, born)
    record = response(b"body", tags=tags, **more)
    return seal(record, storage_key=key(number), epoch=epochs.sealed(), written_at=1.0, keyring=KEYRING)


class FileStore:
    shared = False

    def __init__(self, folder: Path) -> None:
        self.threads = Threads("sweep", 1)
        self.file = LmdbFile(folder / "warm", 8 << 20)
        self.swept = SweptFile(self.file, self.threads)

    async def put(self, number: int, value: bytes, expires_at: float = LATER) -> None:
        self.file.apply([Operation(key(number), value, expires_at)], 0.0)

    async def has(self, number: int) -> bool:
        return self.file.read(key(number), 0.0) is not None

    async def close(self) -> None:
        await self.threads.close(1.0)
        self.file.close()


class FolderStore:
    shared = False

    def __init__(self, folder: Path) -> None:
        self.threads = Threads("sweep", 1)
        self.folder = ObjectFolder(folder / "cold", 8 << 20)
        self.swept = SweptFolder(self.folder, self.threads)

    async def put(self, number: int, value: bytes, expires_at: float = LATER) -> None:
        self.folder.write(key(number), value, expires_at)

    async def has(self, number: int) -> bool:
        return self.folder.read(key(number), 0.0) is not None

    async def close(self) -> None:
        await self.threads.close(1.0)


class SharedStore:
    shared = True

    def __init__(self, valkey) -> None:
        self.tier = RedisTier(valkey.unix_url)
        self.swept = SweptStore(self.tier.send)

    async def put(self, number: int, value: bytes, expires_at: float = LATER) -> None:
        await self.tier.put(key(number), value, expires_at - time.time())

    async def has(self, number: int) -> bool:
        (found,) = await self.tier.send([("EXISTS", f"mc1:k:{key(number).hex()}")])
        return bool(found)

    async def close(self) -> None:
        await self.tier.close()


@pytest_asyncio.fixture(params=["file", "folder", pytest.param("shared", marks=pytest.mark.e2e)])
async def store(request, tmp_path) -> AsyncIterator[FileStore | FolderStore | SharedStore]:
    made: FileStore | FolderStore | SharedStore
    if request.param == "shared":
        made = SharedStore(request.getfixturevalue("valkey"))
    else:
        made = FileStore(tmp_path) if request.param == "file" else FolderStore(tmp_path)
    yield made
    await made.close()


def sweeper(store) -> Sweeper:
    return Sweeper({"the store": (store.swept, store.shared)})


async def numbers(store, job) -> list[int]:
    await job.done.wait()
    assert job.failed == []
    return sorted(int.from_bytes(found, "big") for found in job.matched)


async def test_what_matches_and_was_born_before_is_counted_and_goes(store):
    await store.put(1, value(1, "t"))
    await store.put(2, value(2, "u"))
    await store.put(3, value(3, "t", born=(generation(OWN, 10), 50)))
    await store.put(4, value(4, "t", "u" * 900, "v" * 900))
    assert await numbers(store, sweeper(store).begin(rules("t"))) == [1, 4]
    assert [await store.has(number) for number in (1, 2, 3, 4)] == [False, True, True, False]


async def test_a_soft_purge_counts_and_removes_nothing(store):
    await store.put(1, value(1, "t"))
    assert await numbers(store, sweeper(store).begin(rules("t", soft=True))) == [1]
    assert await store.has(1)


async def test_entries_of_other_pods(store):
    await store.put(1, value(1, "t", born=(generation(OTHER, 99), 40)))
    await store.put(2, value(2, "t", born=(generation(OTHER, 1), 50)))
    found = await numbers(store, sweeper(store).begin(rules("t")))
    # In a store of its own this pod has none; what looks so is of a log that it had before.
    assert found == ([1] if store.shared else [])
    assert await store.has(2)


async def test_many_entries_and_jobs_at_once(store):
    for number in range(1, 1200):
        await store.put(number, value(number, f"t{number % 3}"))
    swept = sweeper(store)
    jobs = [swept.begin(rules(*tags)) for tags in (["t0"], ["t1"], ["t0", "t2"])]
    found = [await numbers(store, job) for job in jobs]
    assert found == [
        [number for number in range(1, 1200) if number % 3 == 0],
        [number for number in range(1, 1200) if number % 3 == 1],
        [number for number in range(1, 1200) if number % 3 != 1],
    ]


async def test_what_is_no_entry_is_left_alone(store):
    for number, content in enumerate(
        [b"", b"MC\x02", b"MC\x01" + bytes(200), b"a chunk", b"MC\x02" + b"\xff" * 3000], 1
    ):
        await store.put(number, content)
    assert await numbers(store, sweeper(store).begin(rules("t"))) == []
    assert all([await store.has(number) for number in range(2, 6)])


async def test_what_has_expired_is_not_counted(store):
    if store.shared:
        pytest.skip("the server removes it itself")
    await store.put(1, value(1, "t"), expires_at=5.0)
    assert await numbers(store, sweeper(store).begin(rules("t"))) == []
    assert not await store.has(1)


async def test_chunks_that_are_one_persons_go_with_the_entry(store):
    chunks = (key(100), key(101))
    more = {"chunks": chunks, "size": 4, "chunk_bytes": 2}
    await store.put(1, value(1, "t", subject=b"someone", **more))
    for digest in chunks:
        if store.shared:
            await store.tier.keep(digest, b"xx", 60.0)
        else:
            await store.put(int.from_bytes(digest, "big"), b"xx")
    await store.put(2, value(2, "t", chunks=(key(102),), size=2, chunk_bytes=2))
    if not store.shared:
        await store.put(102, b"xx")
    assert await numbers(store, sweeper(store).begin(rules("t"))) == [1, 2]
    if store.shared:
        assert [await store.tier.fetch(digest) for digest in chunks] == [None, None]
    else:
        assert [await store.has(number) for number in (100, 101, 102)] == [False, False, True]


@pytest.mark.e2e
async def test_a_store_that_is_away_is_named_and_the_others_are_swept(valkey, tmp_path):
    shared, file = SharedStore(valkey), FileStore(tmp_path)
    await file.put(1, value(1, "t"))
    valkey.kill()
    swept = Sweeper({"warm": (shared.swept, True), "file": (file.swept, False)})
    job = swept.begin(rules("t"))
    await job.done.wait()
    assert job.failed == ["warm"]
    assert len(job.matched) == 1
    own = swept.begin(rules("t"), own_only=True)
    await own.done.wait()
    assert own.failed == []
    await swept.close()
    await file.close()
    await shared.close()
