from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from meshcache.extproc.assembly import build, cold_folder
from meshcache.extproc.control import WorkerOptions
from meshcache.observe import logs
from meshcache.observe.metrics import Metrics
from meshcache.policy.documents import Documents
from meshcache.policy.values import cold_url
from meshcache.tiers.fleet import RedisLeases
from meshcache.tiers.signing import KeyringError
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path


def options(data: Path, keys: Path) -> WorkerOptions:
    return WorkerOptions(index=0, workers=1, socket_path="", data_dir=str(data), keys_dir=str(keys))


async def started(data: Path, keys: Path) -> None:
    service = await build(options(data, keys), Metrics(), logs.get_logger())
    await service.close()


async def test_keys_are_made_in_the_folder_that_was_named(tmp_path: Path) -> None:
    await started(tmp_path / "data", tmp_path / "keys")
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == ["assignment.secret", "signing-0001.key"]
    assert not (tmp_path / "data" / "keys").exists()


async def test_without_keys_where_none_can_be_made_the_installation_uses_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    await started(tmp_path / "data", tmp_path / "file" / "keys")
    assert (tmp_path / "data" / "keys" / "signing-0001.key").exists()


async def test_keys_that_cannot_be_used_are_not_replaced(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "signing-0001.key").write_text("short")
    with pytest.raises(KeyringError, match=r"signing-0001\.key"):
        await started(tmp_path / "data", keys)
    assert (keys / "signing-0001.key").read_text() == "short"


async def test_what_a_conversation_lets_out_is_counted(tmp_path: Path) -> None:
    metrics = Metrics()
    service = await build(options(tmp_path / "data", tmp_path / "keys"), metrics, logs.get_logger())
    service.failed(ValueError("out of a stream"))
    await service.close()
    assert metrics.snapshot().counters["stream_errors_total"] == {("stream",): 1}


async def test_leases_of_the_fleet_may_be_as_slow_as_reads_of_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[float] = []
    monkeypatch.setattr(RedisLeases, "allow", lambda _self, deadline: allowed.append(deadline))
    shared = msgspec.structs.replace(options(tmp_path / "data", tmp_path / "keys"), warm_url="redis://127.0.0.1:1")
    service = await build(shared, Metrics(), logs.get_logger())
    for generation, deadline in enumerate(("3s", "1s"), 1):
        text = policies(tiers=f"{{warm: {{deadline: {deadline}}}}}")
        service.install(Documents.of([("test.yaml", text)]), generation=generation)
    await service.close()
    assert allowed == [3.0, 1.0]


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/a/b", "/a/b"),
        ("/a/b c", "/a/b c"),
        ("//a/b", "//a/b"),
        ("/a#b?c", "/a#b?c"),
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("", None),
    ],
)
def test_the_cold_folder_is_named_by_path_or_url(url: str, folder: str | None) -> None:
    found = cold_folder(url)
    assert (None if found is None else str(found)) == folder
    assert not url or cold_url(url) == url


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "file://host/a", "gs://bucket", "a:b"])
def test_other_stores_are_refused_for_now(url: str) -> None:
    with pytest.raises(ValueError, match="a folder"):
        cold_folder(url)
