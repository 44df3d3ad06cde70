"""Interim responses (1xx) on their way through Envoy, and that nothing of them is stored."""

from __future__ import annotations

import asyncio

import pytest
from running_mesh import PATIENCE, verdict
from scripted_origin import head, reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")
HINT = head([("link", "</style.css>; rel=preload"), ("x-early", "yes"), ("cache-control", "no-store")], status=103)
FINAL = reply(200, [FRESH, ("content-type", "text/plain")], b"body")


async def heads(mesh, path, *lines):
    """All heads of the answer to a GET, and its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", mesh.port)
    asked = "\r\n".join([f"GET {path} HTTP/1.1", f"host: 127.0.0.1:{mesh.port}", "connection: close", *lines])
    writer.write(f"{asked}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        *found, body = (await reader.read()).split(b"\r\n\r\n")
    writer.close()
    return [one.decode("latin-1").lower() for one in found], body


@pytest.mark.parametrize("status", [100, 102, 103, 104])
async def test_an_interim_response_passes_and_the_final_one_is_stored(mesh, origin, path, status):
    origin.script(path, head([("x-early", "yes")], status=status) + FINAL)
    (early, final), body = await heads(mesh, path)
    assert early.startswith(f"http/1.1 {status} ")
    assert "\r\nx-early: yes" in early
    assert final.startswith("http/1.1 200 ")
    assert "x-early" not in final
    assert "\r\ncontent-length: 4" in final
    assert body == b"body"
    assert await mesh.settled(path)
    found, body = await heads(mesh, path)
    assert len(found) == 1
    assert "x-early" not in found[0]
    assert "cache-status: meshcache; hit" in found[0]
    assert body == b"body"


async def test_what_it_says_of_caching_does_not_count(mesh, origin, path):
    origin.script(path, HINT + FINAL)
    found, _ = await heads(mesh, path)
    assert "no-store" in found[0]
    assert await mesh.settled(path)


async def test_several_before_one_that_is_not_stored(mesh, origin, path):
    origin.script(path, head(status=102) + HINT + reply(200, [("cache-control", "no-store")], b"body"))
    found, body = await heads(mesh, path)
    # Envoy 1.40 hands on the first of them.
    assert [one.split()[1] for one in found][:: len(found) - 1] == ["102", "200"]
    assert body == b"body"
    assert not verdict(await mesh.get(path)).hit


async def test_one_before_a_validation(mesh, origin, path):
    stale = [("cache-control", "max-age=0"), ("etag", '"1"')]
    origin.script(path, reply(200, stale, b"body"), HINT + reply(304, stale))
    await mesh.get(path)
    (early, final), body = await heads(mesh, path)
    assert early.startswith("http/1.1 103 ")
    assert final.startswith("http/1.1 200 ")
    assert "x-early" not in final
    assert body == b"body"


async def test_an_upload_waits_for_the_origin_s_consent(mesh, origin, path):
    origin.script(path, reply(200, [], b"taken"))
    reader, writer = await asyncio.open_connection("127.0.0.1", mesh.port)
    asked = f"POST {path} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\nconnection: close\r\n\r\n"
    writer.write(asked.encode())
    async with asyncio.timeout(PATIENCE):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"data")
        assert (await reader.read()).endswith(b"taken")
    writer.close()
    assert origin.asked(path)[0].body == b"data"
    assert origin.asked(path)[0].get("expect") == "100-continue"
