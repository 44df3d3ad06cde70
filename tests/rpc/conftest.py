"""A server on a real socket, and clients of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import uvloop
from rpc_clients import H2Client, Served, served
from rpc_methods import Methods

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    import grpc

OF_SOCKETS = ("test_interop.py", "test_server.py", "test_slow_clients.py")


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Workers run on uvloop, whose transports are not those of asyncio."""
    plain = {"asyncio": asyncio.new_event_loop}
    return plain | {"uvloop": uvloop.new_event_loop} if item.path.name in OF_SOCKETS else plain


@pytest.fixture
async def methods() -> Methods:
    return Methods()


@pytest.fixture
async def server(methods: Methods) -> AsyncIterator[Served]:
    async with served(methods.all()) as made:
        yield made
        assert made.errors == []


@pytest.fixture
async def channel(server: Served) -> AsyncIterator[grpc.aio.Channel]:
    async with server.channel() as made:
        yield made


@pytest.fixture
async def client(server: Served) -> AsyncIterator[H2Client]:
    async with H2Client.to(server) as made:
        yield made
