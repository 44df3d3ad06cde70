"""Background requests over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from meshcache.engine.ports import RefreshError, RefreshRequest
from meshcache.engine.storing.fill import CopyBudget
from meshcache.extproc.refresher import HttpRefresher
from meshcache.message import Headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from meshcache.engine.ports import TakeBody
    from meshcache.message import Response

ROOM = CopyBudget(1000)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"


class Server:
    """Answers every request by the same octets; keeps what it was sent."""

    def __init__(self, answer: bytes, *, then_wait: bool = False, drip: float = 0.0) -> None:
        self._answer = answer
        self._then_wait = then_wait
        self._drip = drip
        self.seen: list[bytes] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.seen.append(head)
                if self._drip:
                    for number in range(len(self._answer)):
                        writer.write(self._answer[number : number + 1])
                        await asyncio.sleep(self._drip)
                writer.write(self._answer)
                await writer.drain()
                if self._then_wait:
                    await asyncio.sleep(60)
                if b"connection: close" in self._answer or b"content-length" not in self._answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(path: Path, server: Server, *, patience: float = 5.0) -> AsyncIterator[HttpRefresher]:
    listening = await asyncio.start_unix_server(server, path / "refresh.sock")
    refresher = HttpRefresher(f"unix:{path}/refresh.sock", patience=patience)
    try:
        yield refresher
    finally:
        await refresher.close()
        listening.close()


def request(path: str = "/a", **headers: str) -> RefreshRequest:
    fields = Headers((name.replace("_", "-"), value) for name, value in headers.items())
    return RefreshRequest("https", "example.com", path, fields)


async def test_what_goes_out(tmp_path: Path) -> None:
    server = Server(OK)
    async with serving(tmp_path, server) as refresher:
        await refresher.fetch(request("/a%2fb/../c?x=%zz&y={}", accept="text/html", x_octets="\xff\xe9"), 100, ROOM)
    [head] = server.seen
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert lines[0] == b"GET /a%2fb/../c?x=%zz&y={} HTTP/1.1"
    assert sorted(line.lower() for line in lines[1:]) == [
        b"accept: text/html",
        b"host: example.com",
        b"x-forwarded-proto: https",
        b"x-octets: \xff\xe9",
    ]


async def test_what_comes_back(tmp_path: Path) -> None:
    answer = (
        b"HTTP/1.1 203 Whatever\r\nContent-Length: 4\r\nLink: <a>\r\nLink: <b>\r\nX-Octets: \xe9\r\n"
        b"Content-Encoding: gzip\r\n\r\nbody"
    )
    async with serving(tmp_path, Server(answer)) as refresher:
        response, body = await refresher.fetch(request(), 4, ROOM)
    assert (response.status, body, response.from_origin) == (203, b"body", True)
    assert response.headers.get_all("link") == ["<a>", "<b>"]
    assert response.headers.get("x-octets") == "\xe9"
    assert response.headers.get("content-encoding") == "gzip", "the body is as it was sent"


async def test_a_304_has_no_body(tmp_path: Path) -> None:
    async with serving(tmp_path, Server(b'HTTP/1.1 304 Not Modified\r\netag: "1"\r\n\r\n')) as refresher:
        response, body = await refresher.fetch(request(if_none_match='"1"'), 100, ROOM)
    assert (response.status, body, response.headers.get("etag")) == (304, b"", '"1"')


async def test_the_scheme_of_a_proxy_in_front_goes_before_that_of_envoys_connection(tmp_path: Path) -> None:
    server = Server(OK)
    async with serving(tmp_path, server) as refresher:
        await refresher.fetch(request(), 100, ROOM)
        await refresher.fetch(request(x_forwarded_proto="http"), 100, ROOM)
    assert [line for head in server.seen for line in head.split(b"\r\n") if line.startswith(b"x-forwarded-proto")] == [
        b"x-forwarded-proto: https",
        b"x-forwarded-proto: http",
    ]


@pytest.mark.parametrize("status", [200, 304, 404, 503])
async def test_an_answer_of_envoys_own_is_no_answer(tmp_path: Path, status: int) -> None:
    answer = f"HTTP/1.1 {status} x\r\nX-Meshcache-Local-Reply: 1\r\ncontent-length: 0\r\n\r\n".encode()
    async with serving(tmp_path, Server(answer)) as refresher:
        with pytest.raises(RefreshError, match=f"Envoy answered {status} itself"):
            await refresher.fetch(request(), 100, ROOM)


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    server = Server(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
    async with serving(tmp_path, server) as refresher:
        response, _ = await refresher.fetch(request(), 100, ROOM)
    assert response.status == 302
    assert len(server.seen) == 1


async def test_cookies_are_not_kept_for_the_next(tmp_path: Path) -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nset-cookie: sid=1\r\ncontent-length: 0\r\n\r\n")
    async with serving(tmp_path, server) as refresher:
        for _ in range(2):
            await refresher.fetch(request(), 100, ROOM)
    assert not any(b"cookie" in head.lower() for head in server.seen)
    assert server.connections == 1, "the connection is used again"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n" + b"x" * 101,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101,
        b"not HTTP at all\r\n\r\n",
        b"",
    ],
)
async def test_what_is_not_whole_not_http_or_too_long(tmp_path: Path, answer: bytes) -> None:
    if b"content-length: 10\r" in answer or answer == b"":
        answer = answer.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with serving(tmp_path, Server(answer)) as refresher:
        with pytest.raises(RefreshError):
            await refresher.fetch(request(), 100, ROOM)


async def test_bodies_under_way_are_counted_and_bounded_together(tmp_path: Path) -> None:
    budget = CopyBudget(5)
    async with serving(tmp_path, Server(OK)) as refresher:
        assert (await refresher.fetch(request(), 100, budget))[1] == b"body"
        assert budget.used == 0
        budget.take(2)
        with pytest.raises(RefreshError, match="no memory"):
            await refresher.fetch(request(), 100, budget)
        assert budget.used == 2


async def test_a_body_is_handed_on_as_it_comes_and_as_far_as_it_is_wanted(tmp_path: Path) -> None:
    body = b"x" * 200_000
    server = Server(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n" + body)
    async with serving(tmp_path, server) as refresher:
        parts: list[bytes] = []
        heads: list[int] = []

        def taking(enough: int) -> Callable[[Response], TakeBody]:
            async def take(part: bytes) -> bool:
                parts.append(part)
                return len(parts) < enough

            def begin(head: Response) -> TakeBody:
                heads.append(head.status)
                assert not parts
                return take

            return begin

        response = await refresher.receive(request(), taking(1000))
        assert b"".join(parts) == body
        assert len(parts) > 1
        assert not response.complete
        parts.clear()
        await refresher.receive(request(), taking(1))
        assert len(parts) == 1
        assert heads == [200, 200]


async def test_nobody_there(tmp_path: Path) -> None:
    refresher = HttpRefresher(f"unix:{tmp_path}/none.sock")
    with pytest.raises(RefreshError):
        await refresher.fetch(request(), 100, ROOM)
    await refresher.close()


@pytest.mark.parametrize("headers", [{"x_a": "one\r\ntwo: 3"}, {"x_a": "\0"}])
async def test_a_field_that_cannot_be_sent(tmp_path: Path, headers: dict[str, str]) -> None:
    server = Server(OK)
    async with serving(tmp_path, server) as refresher:
        with pytest.raises(RefreshError):
            await refresher.fetch(request(**headers), 100, ROOM)
    assert server.seen == []


@pytest.mark.parametrize("server", [Server(OK[:-2], then_wait=True), Server(OK, drip=0.05)])
async def test_an_origin_that_takes_too_long_in_all(tmp_path: Path, server: Server) -> None:
    async with serving(tmp_path, server, patience=0.2) as refresher:
        with pytest.raises(RefreshError):
            await refresher.fetch(request(), 100, ROOM)


@pytest.mark.parametrize("url", ["https://example.com", "ftp://x", "/run/refresh.sock", ""])
def test_addresses_of_other_kinds_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="refresh address"):
        HttpRefresher(url)


async def test_over_tcp(tmp_path: Path) -> None:
    server = Server(OK)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    refresher = HttpRefresher(f"http://127.0.0.1:{port}/")
    assert (await refresher.fetch(request(), 100, ROOM))[1] == b"body"
    assert b"Host: example.com" in server.seen[0] or b"host: example.com" in server.seen[0]
    await refresher.close()
    listening.close()
