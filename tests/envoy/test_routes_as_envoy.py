"""One match fits a request here exactly when Envoy says so of the same match: paths, expressions, headers, query.

Each match is a virtual host of its own in a real Envoy, with the one route that answers 200; what fits is asked by bare
HTTP/1.1, so that nothing between normalises the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from meshcache.envoy.binary import find_envoy
from meshcache.message import Headers, Request
from meshcache.policy.compiled import Condition, Match
from meshcache.policy.patterns import as_sent
from meshcache.policy.reasons import mismatch
from meshcache.policy.routing import RouteIndex

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.e2e


def like(name: str, value: str) -> Condition:
    return Condition(name, value, regex=True)


def header(*conditions: Condition) -> Match:
    return Match(headers=conditions)


def query(*conditions: Condition) -> Match:
    return Match(query=conditions)


MATCHES = (
    Match(exact="/a/b"),
    Match(exact="/a%2Fb"),
    Match(prefix="/a"),
    Match(prefix="/a/b"),
    Match(regex="/a|/b.*"),
    Match(regex="/a/[0-9]+"),
    Match(regex="^/a.*b$"),
    Match(regex="/."),
    Match(regex="(?i)/A/B"),
    Match(regex=".*%2F.*"),
    Match(methods=frozenset({"PUT"})),
    header(Condition("x-a", "1")),
    header(Condition("x-a", "1,2")),
    header(Condition("x-a", "1, 2")),
    header(Condition("x-a", "")),
    header(Condition("x-a", as_sent("é"))),
    header(like("x-a", "1|2")),
    header(like("x-a", "1.*")),
    header(like("x-a", ".?")),
    header(like("x-a", ".")),
    header(like("x-a", "é")),
    header(like("x-a", "(1,2)+"), Condition("x-b", "1")),
    query(Condition("q", "1")),
    query(Condition("q", "")),
    query(Condition("q", "a=b")),
    query(Condition("q", "%41")),
    query(Condition("q", "A")),
    query(Condition("%71", "1")),
    query(Condition("q", "a+b")),
    query(Condition("q", "1;r=2")),
    query(like("q", "[0-9]+")),
    query(like("q", ".")),
    query(like("q", ".?")),
    query(Condition("q", "1"), like("r", "2+")),
    Match(prefix="/a", headers=(like("x-a", ".+"),), query=(Condition("q", "1"),)),
)

PATHS = ("/", "/a", "/a/", "/a/b", "/ab", "/b", "/bc/d", "/a/7", "/A/b", "/a%2Fb", "/a/x/b", "/a/b/c", "//a", "/a//b")
QUERIES = (
    *("q=1", "q=2", "q", "q=", "q=a=b", "q=%41", "q=A", "%71=1", "q=a+b", "q=1&q=2", "q=2&q=1", "r=22&q=1"),
    *("q=1;r=2", "&&q=1", "?q=1", "Q=1", "q=12&r=2", "xq=1", "=1", "q=1&r=2", "q=%C3%A9", "=&q=1", "q==1"),
)
FIELDS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("x-a", "1"),),
    (("x-a", "2"),),
    (("x-a", ""),),
    (("x-a", "1"), ("x-a", "2")),
    (("x-a", "1,2"), ("x-b", "1")),
    (("x-a", "1, 2"),),
    (("X-A", " 1 "),),
    (("x-a", "1"), ("x-a", "2"), ("x-b", "1")),
    (("x-a", as_sent("é")),),
    (("x-a", "\xe9"),),
    (("x-b", "1"),),
    (("x-b", "1"), ("x-a", "0"), ("x-b", "2"), ("x-a", "1,21,2")),
    (("x-a", ""), ("x-a", "")),
)
REQUESTS = (
    *(("GET", path, ()) for path in PATHS),
    *(("GET", f"/a?{text}", ()) for text in QUERIES),
    *(("GET", "/a/b?q=1", fields) for fields in FIELDS),
    ("PUT", "/a", ()),
)


def as_envoy(match: Match) -> dict[str, Any]:
    found: dict[str, Any] = {"prefix": "/"}
    if match.exact is not None:
        found = {"path": match.exact}
    elif match.regex is not None:
        found = {"safe_regex": {"regex": match.regex}}
    elif match.prefix:
        found = {"path_separated_prefix": match.prefix}

    def wanted(one: Condition) -> dict[str, Any]:
        text = one.value if one.regex else one.value.encode("latin-1").decode()
        return {"safe_regex": {"regex": text}} if one.regex else {"exact": text}

    headers = [{"name": one.name, "string_match": wanted(one)} for one in match.headers]
    headers += [{"name": ":method", "string_match": {"exact": method}} for method in match.methods]
    parameters = [{"name": one.name, "string_match": wanted(one)} for one in match.query]
    return found | {"headers": headers, "query_parameters": parameters}


def configuration(port: int) -> dict[str, Any]:
    hosts = [
        {
            "name": f"m{number}",
            "domains": [f"m{number}"],
            "routes": [
                {"match": as_envoy(match), "direct_response": {"status": 200}},
                {"match": {"prefix": "/"}, "direct_response": {"status": 404}},
            ],
        }
        for number, match in enumerate(MATCHES)
    ]
    extensions = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "router", "typed_config": {"@type": f"{extensions}.http.router.v3.Router"}}
    manager = {
        "@type": f"{extensions}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [router],
    }
    listener = {
        "name": "main",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "manager", "typed_config": manager}]}],
    }
    return {"static_resources": {"listeners": [listener]}}


@pytest.fixture
async def envoy(tmp_path: Path) -> AsyncIterator[int]:
    """The port of an Envoy that serves all matches."""
    with socket.socket() as place:
        # Held, so that nobody else is given the port: Envoy listens beside it.
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        port: int = place.getsockname()[1]
        (tmp_path / "envoy.json").write_text(json.dumps(configuration(port)))
        arguments = ("-c", str(tmp_path / "envoy.json"), "--use-dynamic-base-id", "--concurrency", "1", "-l", "error")
        process = await asyncio.create_subprocess_exec(find_envoy(), *arguments, stderr=sys.stderr)
        try:
            async with asyncio.timeout(120):
                while True:
                    assert process.returncode is None
                    with contextlib.suppress(ConnectionError):
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        writer.close()
                        break
                    await asyncio.sleep(0.05)
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def test_a_match_fits_what_it_fits_in_envoy(envoy: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", envoy)
    different, fitted = [], 0
    for number, match in enumerate(MATCHES):
        index = RouteIndex([(match, True)])
        for method, target, fields in REQUESTS:
            lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
            head = f"{method} {target} HTTP/1.1\r\nhost: m{number}\r\ncontent-length: 0\r\n{lines}\r\n"
            writer.write(head.encode("latin-1"))
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            theirs = answer.startswith(b"HTTP/1.1 200")
            assert theirs or answer.startswith(b"HTTP/1.1 404"), (head, answer)
            request = Request(method, f"m{number}", target, Headers((n.lower(), v.strip()) for n, v in fields))
            ours = not mismatch(match, request)
            assert bool(index.find(request.authority, target, method, request.headers)) is ours
            fitted += theirs
            if ours is not theirs:
                different.append((match, method, target, fields, theirs))
    writer.close()
    assert not different, "\n".join(map(str, different))
    assert fitted > 300
