"""Messages that just keep Envoy's bounds for header fields: what the cache adds never makes them an error."""

from __future__ import annotations

import pytest
from running_mesh import verdict
from scripted_origin import reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")
STALE = ("cache-control", "max-age=0")


async def test_answers_with_as_many_fields_as_envoy_takes(mesh, origin, path):
    statuses = []
    for number in range(190, 201):
        fields = [FRESH, *((f"x-{index}", "v") for index in range(number))]
        origin.script(f"{path}/{number}", reply(200, fields, b"body"))
        first, second = [await mesh.get(f"{path}/{number}") for _ in range(2)]
        statuses.append(first.status_code)
        assert second.status_code == first.status_code
        assert verdict(second).hit == (first.status_code == 200)
    # More than its bound is for Envoy an error of the origin's; what the cache has to say is never the reason.
    assert set(statuses) == {200, 502}
    assert statuses == sorted(statuses)


async def test_requests_with_as_many_fields_as_envoy_takes(mesh, origin, path):
    origin.script(path, reply(200, [STALE, ("etag", '"1"')], b"body"))
    statuses = []
    for number in range(186, 201):
        answer = await mesh.get(path, {f"x-{index}": "v" for index in range(number)})
        statuses.append(answer.status_code)
    assert set(statuses) == {200, 431}
    assert statuses == sorted(statuses)


async def test_requests_with_as_many_bytes_of_fields_as_envoy_takes(mesh, origin, path):
    origin.script(path, reply(200, [STALE, ("etag", f'"{"x" * 2000}"')], b"body"))
    statuses = []
    for size in range(92_000, 99_000, 500):
        answer = await mesh.get(path, {"x-one": "v" * (size // 2), "x-two": "v" * (size // 2)})
        statuses.append(answer.status_code)
    assert set(statuses) == {200, 431}
    assert statuses == sorted(statuses)
    assert origin.asked(path)[0].get("if-none-match") is None
    assert origin.asked(path)[1].get("if-none-match") is not None, "where there is room the origin is asked to confirm"
