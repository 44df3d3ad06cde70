from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from rpc_clients import served

from meshcache.rpc.calls import Status
from meshcache.rpc.health import NAME, Health
from rpc_peer import END, Peer, data, message, opens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN
CHECK, WATCH = f"/{NAME}/Check", f"/{NAME}/Watch"


@pytest.fixture
def health() -> Health:
    return Health(("a.B",))


@pytest.fixture
async def stub(health: Health) -> AsyncIterator[health_pb2_grpc.HealthStub]:
    async with served(health.methods()) as made, made.channel() as channel:
        yield health_pb2_grpc.HealthStub(channel)
        assert made.errors == []


def asked(service: str) -> HealthCheckRequest:
    return HealthCheckRequest(service=service)


@pytest.mark.parametrize("service", ["", "a.B"])
async def test_a_check(health: Health, stub: health_pb2_grpc.HealthStub, service: str) -> None:
    said = [(await stub.Check(asked(service))).status]
    for serving in (True, False, True):
        health.set(serving=serving)
        said.append((await stub.Check(asked(service))).status)
    health.retire()
    said.append((await stub.Check(asked(service))).status)
    assert said == [NOT_SERVING, SERVING, NOT_SERVING, SERVING, NOT_SERVING]


async def test_a_check_of_something_else(stub: health_pb2_grpc.HealthStub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Check(asked("a.C"))
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND


async def test_who_watches_is_told_of_changes_and_of_the_end(health: Health, stub: health_pb2_grpc.HealthStub) -> None:
    watched = stub.Watch(asked("a.B"))
    assert (await watched.read()).status == NOT_SERVING
    health.set(serving=False)
    health.set(serving=True)
    assert (await watched.read()).status == SERVING
    health.retire()
    assert (await watched.read()).status == NOT_SERVING
    assert await watched.read() is grpc.aio.EOF
    assert await watched.code() == grpc.StatusCode.OK


async def test_who_watches_something_else_is_told_that_it_is_unknown(
    health: Health, stub: health_pb2_grpc.HealthStub
) -> None:
    watched = stub.Watch(asked("a.C"))
    assert (await watched.read()).status == UNKNOWN
    health.set(serving=True)
    health.retire()
    assert await watched.read() is grpc.aio.EOF


async def test_who_watches_after_the_end_is_told_so_at_once(health: Health, stub: health_pb2_grpc.HealthStub) -> None:
    health.retire()
    watched = stub.Watch(asked(""))
    assert (await watched.read()).status == NOT_SERVING
    assert await watched.read() is grpc.aio.EOF


@pytest.mark.parametrize("path", [CHECK, WATCH])
@pytest.mark.parametrize("sent", [b"", message(b"\xff\xff")], ids=["nothing", "garbage"])
async def test_a_question_that_is_none(health: Health, path: str, sent: bytes) -> None:
    peer = Peer(health.methods())
    peer.send(opens(1, path) + data(1, sent, END))
    [only] = await peer.settled()
    assert peer.fields(only)["grpc-status"] == str(int(Status.INTERNAL))
    assert peer.errors == [], "the client's fault"


async def test_nothing_is_left_of_who_has_watched(health: Health) -> None:
    peer = Peer(health.methods())
    peer.send(opens(1, WATCH) + data(1, message(b""), END))
    await peer.settled()
    peer.lose()
    await peer.settled()
    assert peer.cancelled == 1
    health.set(serving=True)
