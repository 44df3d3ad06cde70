"""What is worth storing: judged when the head of a response arrives, before the client is told that it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cache_harness import Rig
from cache_origin import Reply
from policy_texts import policies

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("fields", "stored"),
    [
        ((("cache-control", "max-age=0"),), False),
        ((("cache-control", "max-age=10"), ("age", "10")), True),  # for clients that say max-stale
        ((("cache-control", "max-age=10, must-revalidate"), ("age", "10")), False),
        ((("cache-control", "no-cache"),), False),
        ((("cache-control", "max-age=0"), ("etag", '"1"')), True),
        ((("cache-control", "no-cache"), ("etag", '"1"')), True),
        ((("cache-control", "max-age=0, stale-while-revalidate=5"),), True),
        ((("cache-control", "max-age=1"),), True),
    ],
)
async def test_what_could_never_be_used_is_not_stored_and_not_called_so(
    tmp_path: Path, fields: tuple[tuple[str, str], ...], stored: bool
) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}")) as rig:
        rig.origin.does("/a", lambda _: Reply(200, fields, b"one"))
        got = await rig.get()
        assert ("; stored" in (got.headers.get("cache-status") or "")) is stored
        assert got.stored is stored


@pytest.mark.parametrize(
    ("fields", "stored"),
    [
        ((("connection", "close"),), False),
        ((("connection", "Keep-Alive, Close"),), False),
        ((("connection", "close"), ("content-length", "3")), True),
        ((("connection", "close"), ("transfer-encoding", "chunked")), True),
        ((), True),
    ],
)
async def test_a_body_whose_end_cannot_be_told_from_a_break_is_not_stored(
    tmp_path: Path, fields: tuple[tuple[str, str], ...], stored: bool
) -> None:
    async with Rig(tmp_path, policies(freshness="{defaultTtl: 60s}")) as rig:
        rig.origin.does("/a", lambda _: Reply(200, fields, b"one"))
        assert (await rig.get()).stored is stored
