"""Herds: many clients want one thing that is not there, through real Envoy and two workers."""

from __future__ import annotations

import asyncio

import pytest
from herds import SlowStep, ask, herd, summary

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_five_hundred_clients_are_one_request(pair, origin, path):
    step = SlowStep(1.0)
    origin.script(path, step)
    answers = await herd(pair.port, path, 500)
    assert {(one.status, one.body) for one in answers} == {(200, f"{path} 1".encode())}
    assert step.times == 1
    assert summary(answers) == {"meshcache; fwd=uri-miss; stored": 1, "meshcache; fwd=uri-miss; collapsed": 499}


async def test_the_leading_client_leaves_in_the_middle(pair, origin, path):
    step = SlowStep(1.0)
    origin.script(path, step)
    leader = asyncio.create_task(ask(pair.port, path))
    await asyncio.sleep(0.1)
    crowd = asyncio.create_task(herd(pair.port, path, 500))
    await asyncio.sleep(0.5)
    leader.cancel()
    answers = await crowd
    assert {one.status for one in answers} == {200}
    assert len({one.body for one in answers}) == 1
    assert step.times == 2
