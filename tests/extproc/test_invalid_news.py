"""What a worker has to tell of what has become invalid is gathered, and bounded."""

from __future__ import annotations

import asyncio

import pytest

from meshcache.extproc.control import Invalid
from meshcache.extproc.invalid_news import MOST, InvalidNews


async def test_what_comes_between_two_reports_is_one() -> None:
    news = InvalidNews()
    taking = asyncio.create_task(news.take())
    await asyncio.sleep(0)
    assert not taking.done()
    news.add([b"b", b"a"])
    news.add([b"a"])
    assert await taking == Invalid((b"a", b"b"))
    news.add([b"c"])
    assert await news.take() == Invalid((b"c",))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await news.take()


async def test_very_much_is_everything() -> None:
    news = InvalidNews()
    news.add(number.to_bytes(16, "big") for number in range(MOST))
    assert not (await news.take()).everything
    for number in range(MOST + 2):
        news.add([number.to_bytes(16, "big")])
    assert await news.take() == Invalid((), everything=True)
    news.add([b"a"])
    assert await news.take() == Invalid((b"a",))
