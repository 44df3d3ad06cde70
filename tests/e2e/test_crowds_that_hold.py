"""Clients that hold an answer which is not stored here, among others that want it: through real Envoy, two workers."""

from __future__ import annotations

import asyncio

import pytest
from herds import ask, herd, until_waiting
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FIELDS = [("cache-control", "max-age=60"), ("etag", '"1"')]
HELD = ("if-none-match", '"1"')


async def test_of_a_crowd_whose_first_holds_the_answer_two_ask(pair, origin, path):
    all_wait = await until_waiting(pair, 60)
    begun = asyncio.Event()
    asked = []

    async def validating(request, wire):
        asked.append(request.get("if-none-match"))
        if len(asked) == 1:
            begun.set()
            await all_wait()
        if asked[-1] == '"1"':
            await wire.send(reply(304, FIELDS))
        else:
            await wire.send(reply(200, FIELDS, b"whole"))

    origin.script(path, validating)
    leader = asyncio.create_task(ask(pair.port, path, HELD))
    await begun.wait()
    crowd = asyncio.gather(herd(pair.port, path, 30, HELD), herd(pair.port, path, 30))
    holding, others = await crowd
    assert (await leader).status == 304
    assert {(one.status, one.body) for one in holding} == {(304, b"")}
    assert {(one.status, one.body) for one in others} == {(200, b"whole")}
    # Each worker has a queue of its own: where nobody in it asks for the whole, some ask with their condition.
    assert asked.count(None) == 1
    assert len(asked) <= 4
