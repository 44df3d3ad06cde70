"""What crosses the borders of the filter chain, seen with real Envoy."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation as Mutation
from envoy_data_plane.envoy.config.core.v3 import HeaderValue, HeaderValueOption
from envoy_data_plane.envoy.config.rbac.v3 import Permission, Policy, Principal, RbacAction
from envoy_data_plane.envoy.config.rbac.v3 import Rbac as Rules
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import HeaderMutation, Mutations
from envoy_data_plane.envoy.extensions.filters.http.rbac.v3 import Rbac
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.matcher.v3 import PathMatcher, StringMatcher
from envoy_rig import pass_on

from meshcache.envoy import bootstrap
from meshcache.envoy.render import pack

pytestmark = pytest.mark.e2e


INTERNAL = "x-meshcache-"


def hit(message: ext_proc.ProcessingRequest) -> ext_proc.ProcessingResponse:
    """Answer at once, with an internal header."""
    reply = ext_proc.ProcessingResponse()
    added = reply.immediate_response.headers.set_headers.add()
    added.header.key, added.header.raw_value = "x-meshcache-ttl", b"7"
    reply.immediate_response.status.code = 200
    reply.immediate_response.body = b"stored"
    return reply


async def test_a_forged_x_forwarded_for_does_not_change_the_peer_address(make_rig):
    rig = await make_rig()
    for forged in ("203.0.113.7", "10.0.0.1, 203.0.113.7", "::1"):
        await rig.client.get("/a", headers={"x-forwarded-for": forged})
        request = next(m for m in reversed(rig.sidecar.seen) if m.WhichOneof("request") == "request_headers")
        fields = request.attributes["envoy.filters.http.ext_proc"].fields
        assert fields["source.address"].string_value.rsplit(":", 1)[0] == "127.0.0.1"
        assert fields["connection.mtls"].bool_value is False
        assert fields["xds.cluster_name"].string_value == "origin"


async def test_a_connection_manager_that_trusts_the_header_would_be_fooled(make_rig, monkeypatch):
    # As Istio's inbound listeners are set up: there, `trust` may name the mesh but no address range.
    build = bootstrap._listener

    def trusting(name, address, manager):
        manager.use_remote_address = False
        return build(name, address, manager)

    monkeypatch.setattr(bootstrap, "_listener", trusting)
    rig = await make_rig()
    await rig.client.get("/a", headers={"x-forwarded-for": "203.0.113.7"})
    fields = rig.sidecar.seen[0].attributes["envoy.filters.http.ext_proc"].fields
    assert fields["source.address"].string_value.startswith("203.0.113.7")


async def test_internal_headers_of_clients_reach_neither_sidecar_nor_origin(make_rig):
    rig = await make_rig()
    await rig.client.get("/a", headers={"x-meshcache-tier": "hot", "X-MeshCache-Arm": "b", "x-mine": "1"})
    assert "x-mine" in rig.sidecar.headers()
    assert not [name for name in rig.sidecar.headers() if name.startswith("x-meshcache")]
    assert "x-meshcache" not in rig.origin.heads[-1].lower()


async def test_internal_headers_of_origins_reach_neither_sidecar_nor_client(make_rig):
    rig = await make_rig()
    rig.origin.answer = b"HTTP/1.1 200 OK\r\nX-Meshcache-Ttl: 9\r\nx-theirs: 1\r\ncontent-length: 2\r\n\r\nok"
    answer = await rig.client.get("/a")
    assert rig.sidecar.headers("response_headers")["x-theirs"] == "1"
    assert "x-meshcache-ttl" not in rig.sidecar.headers("response_headers")
    assert "x-meshcache-ttl" not in answer.headers
    assert answer.headers["x-theirs"] == "1"


async def test_internal_headers_of_the_sidecar_reach_neither_origin_nor_client(make_rig):
    rig = await make_rig()

    def respond(message):
        reply = pass_on(message)
        kind = message.WhichOneof("request")
        added = getattr(reply, kind).response.header_mutation.set_headers.add()
        added.header.key, added.header.raw_value = "x-meshcache-plan", b"1"
        return reply

    rig.sidecar.respond = respond
    answer = await rig.client.get("/a")
    assert "x-meshcache" not in rig.origin.heads[-1].lower()
    assert "x-meshcache-plan" not in answer.headers


async def test_a_filter_in_front_sees_the_internal_headers_of_a_hit_and_the_client_does_not(make_rig):
    copy = Mutation(append=HeaderValueOption(header=HeaderValue(key="x-copy", value="%RESP(x-meshcache-ttl)%")))
    front = HttpFilter(name="front", typed_config=pack(HeaderMutation(mutations=Mutations(response_mutations=[copy]))))
    rig = await make_rig(filters_before=(front,))

    rig.sidecar.respond = hit
    answer = await rig.client.get("/a")
    assert answer.text == "stored"
    assert answer.headers["x-copy"] == "7"
    assert "x-meshcache-ttl" not in answer.headers


async def test_rbac_in_front_refuses_what_the_cache_would_answer(make_rig):
    deny = Rules(
        action=RbacAction.DENY,
        policies={
            "secret": Policy(
                permissions=[Permission(url_path=PathMatcher(path=StringMatcher(prefix="/secret")))],
                principals=[Principal(any=True)],
            )
        },
    )
    rbac = HttpFilter(name="envoy.filters.http.rbac", typed_config=pack(Rbac(rules=deny)))
    rig = await make_rig(filters_before=(rbac,))
    rig.sidecar.respond = hit
    assert (await rig.client.get("/open")).text == "stored"
    assert (await rig.client.get("/secret")).status_code == 403
    assert (await rig.raw(b"GET /x/../secret HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).startswith(
        b"HTTP/1.1 403"
    )


@pytest.mark.parametrize(
    ("sent", "normal"),
    [
        ("/a/../b", "/b"),
        ("/a/./b?x=/../y", "/a/b?x=/../y"),
        ("/a//b", "/a//b"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%5Cb", "/a%5Cb"),
        ("/a/%2e%2e/b", "/b"),
        ("/a%2e%2e/b", "/a../b"),
        ("/%61", "/a"),
        ("/a\\..\\b", "/b"),
    ],
)
async def test_sidecar_and_origin_see_the_same_path(make_rig, sent, normal):
    rig = await make_rig()
    await rig.raw(f"GET {sent} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    assert rig.sidecar.headers()[":path"] == normal
    assert rig.origin.heads[-1].split(" ")[1] == normal


async def test_the_origins_answer_passes_as_it_is(make_rig):
    rig = await make_rig()
    rig.origin.answer = (
        b"HTTP/1.1 200 OK\r\nserver: theirs\r\ndate: Sat, 01 Jan 2000 00:00:00 GMT\r\n"
        b"transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 5\r\nx-meshcache-t: 1\r\n\r\n"
    )
    answer = await rig.raw(b"GET /a HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert {line.split(b":")[0] for line in head.split(b"\r\n")[1:]} == {
        *(b"server", b"date", b"transfer-encoding", b"trailer", b"connection")
    }
    assert b"server: theirs" in head
    assert b"date: Sat, 01 Jan 2000" in head
    assert body == b"2\r\nok\r\n0\r\nx-sum: 5\r\n\r\n"


async def test_websocket_upgrades_pass(make_rig):
    rig = await make_rig()
    rig.origin.answer = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhello"
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    writer.write(b"GET /ws HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    assert head.startswith(b"HTTP/1.1 101")
    assert await asyncio.wait_for(reader.readexactly(5), 60) == b"hello"
    writer.close()


async def test_large_headers_pass(make_rig):
    rig = await make_rig()
    rig.origin.answer = b"HTTP/1.1 200 OK\r\nx-big: " + b"a" * 80_000 + b"\r\ncontent-length: 0\r\n\r\n"
    answer = await rig.client.get("/a", headers={f"x-{n}": "b" * 500 for n in range(120)})
    assert answer.status_code == 200
    assert len(answer.headers["x-big"]) == 80_000
    assert (await rig.client.get("/a", headers={"x-big": "b" * 100_000})).status_code == 431


@pytest.mark.parametrize(
    ("request_line", "fields", "status"),
    [
        (b"BREW /a HTTP/1.1", b"", 400),
        (b"GET /\xe9 HTTP/1.1", b"", 400),
        (b"GET /a HTTP/1.0", b"", 426),
        (b"GET /a HTTP/1.1", b"".join(b"x-%d: 1\r\n" % number for number in range(201)), 431),
    ],
    ids=["unknown method", "eight-bit path", "HTTP/1.0", "201 fields"],
)
async def test_what_envoy_refuses_reaches_neither_sidecar_nor_origin(make_rig, request_line, fields, status):
    rig = await make_rig()
    answer = await rig.raw(request_line + b"\r\nhost: a\r\nconnection: close\r\n" + fields + b"\r\n")
    assert answer.startswith(f"HTTP/1.1 {status}".encode())
    assert (rig.sidecar.seen, rig.origin.heads) == ([], [])


async def test_the_refresh_listener_goes_to_the_origin_without_the_cache(make_rig):
    rig = await make_rig()
    rig.sidecar.respond = hit
    assert rig.options.refresh_socket.stat().st_mode & 0o777 == 0o600
    transport = httpx.AsyncHTTPTransport(uds=str(rig.options.refresh_socket))
    async with httpx.AsyncClient(transport=transport, timeout=20) as client:
        answer = await client.get("http://elsewhere.example/a", headers={"x-meshcache-refresh": "1"})
    assert answer.text == "ok"
    assert rig.sidecar.seen == []
    assert "host: elsewhere.example" in rig.origin.heads[-1]
    assert INTERNAL not in rig.origin.heads[-1]
