"""Bad input from clients and origins, through the front door: an answer or a pass-through, never a wrong answer.

That no worker died or let an exception out is checked by the fixture `mesh` at its end.
"""

from __future__ import annotations

import contextlib

import httpx
import pytest
import pytest_asyncio
from running_mesh import verdict
from scripted_origin import cut, head, reply

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")
BYTES = bytes(range(0x80, 0x100))


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def still_well(mesh):
    """After each test the cache works as before and nothing was let out."""
    yield
    assert await mesh.metric("stream_errors_total") == 0, mesh.log
    answer = await mesh.get("/plain/well")
    assert answer.status_code == 200


# -- clients -------------------------------------------------------------------------------------------------------


async def test_sixty_kibibytes_of_headers(mesh, origin, path):
    for headers in ({"x-big": "a" * (60 << 10)}, {f"x-{number}": "b" * 600 for number in range(100)}):
        assert (await mesh.get(path, headers)).status_code == 200
    assert origin.count(path) == 1


async def test_as_many_headers_as_envoy_takes(mesh, path):
    answers = [await mesh.get(path, {f"x-{number}": "1" for number in range(count)}) for count in (190, 190, 250)]
    assert [answer.status_code for answer in answers] == [200, 200, 431]
    assert verdict(answers[1]).hit


async def test_bytes_above_ascii_in_header_values_reach_the_origin_and_select_variants(mesh, origin, path):
    origin.script(
        path, reply(200, [FRESH, ("vary", "x-any")], b"bytes"), reply(200, [FRESH, ("vary", "x-any")], b"other")
    )

    async def ask(value):
        request = b"GET %b HTTP/1.1\r\nhost: a\r\nx-any: %b\r\nconnection: close\r\n\r\n" % (path.encode(), value)
        return await mesh.raw(request)

    assert (await ask(BYTES)).endswith(b"\r\n\r\nbytes")
    assert (await ask(BYTES[:-1])).endswith(b"\r\n\r\nother")
    assert b"; hit" in await ask(BYTES)
    assert (await ask(BYTES)).endswith(b"\r\n\r\nbytes")
    assert origin.asked(path)[0].get("x-any") == BYTES.decode("latin-1")


@pytest.mark.parametrize("target", [b"/plain/\xff\xfe", b"/plain/\x01", b"/plain/a b", b"/pl\x00ain"])
async def test_a_target_that_is_no_uri_is_refused(mesh, target):
    answer = await mesh.raw(b"GET " + target + b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("length", [8 << 10, 50 << 10])
async def test_a_very_long_path(mesh, origin, path, length):
    long, other = path + "/" + "a" * length, path + "/" + "a" * (length - 1) + "b"
    first, second, different = await mesh.get(long), await mesh.get(long), await mesh.get(other)
    assert first.content == second.content == f"{long} 1".encode()
    assert verdict(second).hit
    assert different.content == f"{other} 1".encode()


@pytest.mark.parametrize(
    "target", ["/%", "/%zz", "/%00", "//", "///x//y", "/a?", "/a?&&=&=", "/a?%", "/a?" + "b&" * 3000, "/;a=1", "/a#b"]
)
async def test_odd_targets_keep_their_own_answers(mesh, origin, path, target):
    raw = f"GET {path}{target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode()
    first, second = await mesh.raw(raw), await mesh.raw(raw)
    status = first[:12]
    assert second[:12] == status
    assert status in (b"HTTP/1.1 200", b"HTTP/1.1 400")
    assert first.rpartition(b"\r\n\r\n")[2] == second.rpartition(b"\r\n\r\n")[2]


MALFORMED = {
    "cache-control": [
        "",
        ",",
        "=,=;",
        "max-age",
        "max-age=",
        "max-age=-1",
        "max-age=a",
        'max-age="',
        "max-age=9" * 500,
        "no-cache=",
        "max-stale=\xff",
        "\xff\xfe",
        '"' * 999,
        "only-if-cached=1x",
        "min-fresh=1e9",
        "a" * 30_000,
    ],
    "if-none-match": ["", "*x", '"', 'W/"', "W/", '"a" "b"', '"a",,,"b"', "\xff", ', "' * 5000],
    "if-modified-since": ["", "now", "0", "Sat, 99 Foo 2022 99:99:99 GMT", "\xff", "1" * 5000],
    "pragma": ["", "no-cache, no-cache=", "\xff"],
    "range": ["", "bytes", "bytes=", "bytes=9-1", "lines=1-", "bytes=" + "0-0," * 2000],
    "authorization": ["", "\xff"],
    "cookie": ["", "=;=", "\xff=\xff", "a" * 20_000],
    "accept-encoding": ["", "\xff", ";q=", "gzip;q=2"],
    "host": ["", "a:b:c", "[::1", "a b", "\xff", "a" * 3000, "..", "a@b"],
    "content-length": ["abc", "-1", "1, 2", "99999999999999999999999"],
    "transfer-encoding": ["", "gzip", "chunked, chunked", "\xff"],
    "te": ["", "\xff"],
    "connection": ["close,", "close, x-a, \xff", "close, cache-control"],
    "upgrade": ["", "\xff", "a/b/c"],
    "expect": ["", "101-x", "\xff"],
    "x-forwarded-for": ["", "\xff", "1.2.3.4, " * 500],
    "x-user-score": ["", "\xff", "1e999", "0x1", "1_0"],
    "x-canary": ["", "\xff"],
}


@pytest.mark.parametrize("field", MALFORMED)
async def test_malformed_fields_of_clients(mesh, origin, path, field):
    origin.script(path, reply(200, [FRESH, ("etag", '"e"')], b"right"))
    await mesh.raw(_with(path, "accept", b"*/*"))
    for value in MALFORMED[field]:
        answer = await mesh.raw(_with(path, field, value.encode("latin-1")))
        # Envoy may refuse by itself; a length that promises a body makes it wait for one, until the test hangs up.
        status = answer[9:12]
        assert status in (b"", b"200", b"304", b"400", b"403", b"408", b"417", b"431", b"501", b"504"), value
        if status == b"200":
            assert answer.endswith(b"\r\n\r\nright"), value


def _with(path, field, value):
    host = b"" if field == "host" else b"host: a\r\n"
    end = b"" if field == "connection" else b"connection: close\r\n"
    return b"GET %b HTTP/1.1\r\n%b%b: %b\r\n%b\r\n" % (path.encode(), host, field.encode(), value, end)


async def test_duplicates_that_disagree_about_the_length_are_refused(mesh, origin, path):
    request = (
        f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\nconnection: close\r\n\r\nab"
    )
    assert (await mesh.raw(request.encode())).startswith(b"HTTP/1.1 400")
    assert origin.count(path) == 0


async def test_both_kinds_of_length_at_once_are_refused(mesh, origin, path):
    request = (
        f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n"
        "connection: close\r\n\r\n0\r\n\r\n"
    )
    assert (await mesh.raw(request.encode())).startswith(b"HTTP/1.1 400")
    assert origin.count(path) == 0


async def test_options_for_the_server_as_a_whole(mesh):
    answer = await mesh.raw(b"OPTIONS * HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert answer[:9] == b"HTTP/1.1 "


async def test_an_absolute_target_is_the_same_resource(mesh, origin, path):
    plain = f"GET {path} HTTP/1.1\r\nhost: one.example\r\nconnection: close\r\n\r\n"
    absolute = f"GET http://one.example{path} HTTP/1.1\r\nhost: other.example\r\nconnection: close\r\n\r\n"
    first, second = await mesh.raw(plain.encode()), await mesh.raw(absolute.encode())
    assert first.endswith(f"{path} 1".encode())
    # The target names the host, whatever `host` says (RFC 9112 section 3.2.2).
    assert second.endswith(f"{path} 1".encode())
    assert origin.count(path) == 1


async def test_http_1_0_is_told_what_envoy_tells_it(mesh, path):
    answer = await mesh.raw(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 426")


async def test_garbage_instead_of_a_request(mesh):
    for garbage in (
        b"\x00" * 1000 + b"\r\n\r\n",
        b"\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 9,
    ):
        with contextlib.suppress(TimeoutError):
            assert (await mesh.raw(garbage + b"x\r\n\r\n"))[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 426", b"")


# -- origins -------------------------------------------------------------------------------------------------------

HARMLESS = [
    *[
        ("cache-control", f"{text}, max-age=60")
        for text in ("", "=", "x=", '"', "\xff", "a" * 30_000, "no-stor", "x;y")
    ],
    *[("etag", text) for text in ("", '"', 'W/"', "W/", "bare", '"a" "b"', "\xff\xfe", '"' + "a" * 30_000 + '"')],
    *[("age", text) for text in ("", "a", "-1", "1.5", "\xff")],
    *[("date", text) for text in ("", "0", "yesterday", "Sat, 99 Foo 2022 99:99:99 GMT", "\xff", "1" * 5000)],
    *[("expires", text) for text in ("", "0", "never", "\xff")],
    *[("last-modified", text) for text in ("", "0", "\xff", "Sat, 99 Foo 2022 99:99:99 GMT")],
    *[("cache-status", text) for text in ("", ";;;", "\xff", '"', "a" * 5000)],
    *[("content-type", text) for text in ("", "\xff", "a" * 30_000)],
    *[("connection", text) for text in (",", "\xff", "x-a, x-b")],
    *[("warning", "\xff"), ("pragma", "no-cache"), ("location", "\xff"), ("location", "http://[::1"), ("link", "<")],
    *[("set-cookie", text) for text in ("", "\xff", "a" * 30_000)],
]


@pytest.mark.parametrize(
    ("field", "value"), HARMLESS, ids=[f"{number} {field}" for number, (field, _) in enumerate(HARMLESS)]
)
async def test_malformed_fields_of_origins_change_no_answer(mesh, origin, path, field, value):
    fields = [(field, value)] if field == "cache-control" else [FRESH, (field, value)]
    origin.script(path, reply(200, fields, b"right"))
    for condition in (None, {"if-none-match": '"e"'}, {"if-modified-since": "Sat, 01 Jan 2022 00:00:00 GMT"}):
        answer = await mesh.get(path, condition)
        assert (answer.status_code, answer.content) == (200, b"right")
        if field not in ("set-cookie", "connection", "cache-status", "age", "location"):
            assert dict(answer.headers.raw)[field.encode()].endswith(value.encode("latin-1"))
    assert (await mesh.get(path, method="POST")).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        [("cache-control", "max-age=a")],
        [("cache-control", "max-age=-1")],
        [("cache-control", "max-age=")],
        [("cache-control", "max-age")],
        [("cache-control", "max-age=1.5")],
        [("cache-control", "max-age=60\xff")],
        [("cache-control", "s-maxage=x, max-age=60")],
        [("expires", "garbage")],
        [("expires", "0")],
        [("cache-control", "max-age=0, max-age=60")],
        [("cache-control", "no-store; max-age=60")],
        [("cache-control", "max-age=60 private")],
        [("cache-control", "max-age=60"), ("cache-control", "no-cache; public")],
        [FRESH, ("age", "99999999999999999999999999")],
        [FRESH, ("date", "Sat, 01 Jan 2000 00:00:00 GMT")],
        [FRESH, ("vary", "*, \xff")],
        [FRESH, ("vary", "not a token")],
    ],
    ids=lambda fields: " ".join(f"{name} {value}" for name, value in fields),
)
async def test_what_says_nothing_sure_about_freshness_makes_nothing_fresh(mesh, origin, path, fields):
    origin.script(path, reply(200, fields, b"one"), reply(200, fields, b"two"))
    assert (await mesh.get(path)).content == b"one"
    assert (await mesh.get(path)).content == b"two"


@pytest.mark.parametrize("vary", [",", ",,accept,,", "accept," * 2000, "x-" + "a" * 20_000, "\xff", "accept\xff"])
async def test_odd_vary_fields(mesh, origin, path, vary):
    async def speak(asked, wire):
        await wire.send(reply(200, [FRESH, ("vary", vary)], (asked.get("accept") or "none").encode()))

    origin.script(path, speak)
    for accepted in ("text/a", "text/b", "text/a", "text/b"):
        answer = await mesh.get(path, {"accept": accepted})
        assert answer.status_code == 200
        if "accept" in vary:
            assert answer.text == accepted


async def test_an_origin_with_very_many_or_very_large_headers(mesh, origin, path):
    many = [(f"x-{number}", "1") for number in range(150)]
    for fields in (many, [("x-big", "a" * (60 << 10))]):
        origin.script(path, reply(200, [FRESH, *fields], b"right"))
        await mesh.get(path)
        answer = await mesh.get(path)
        assert (answer.status_code, answer.content) == (200, b"right")
        assert {name: answer.headers[name] for name, _ in fields} == dict(fields)
        await mesh.get(path, method="DELETE")


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 999 x\r\ncache-control: max-age=60\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 \r\ncache-control: max-age=60\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncache-control: max-age=60\r\n\r\nok",
        b"HTTP/1.1 200 x\r\ncache-control: max-age=60\r\nno colon\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 x\r\ncache-control: max-age=60\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 x\r\ncache-control: max-age=60\r\n folded: 1\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 x\r\ncache-control: max-age=60\r\nx\xff: 1\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 304 x\r\ncache-control: max-age=60\r\n\r\n",
        b"HTTP/1.1 206 x\r\ncache-control: max-age=60\r\ncontent-length: 2\r\n\r\nok",
    ],
    ids=["999", "no reason", "1.0", "no colon", "two lengths", "folded", "name", "304 unasked", "206 unasked"],
)
async def test_answers_that_are_hardly_http(mesh, origin, path, raw):
    origin.script(path, cut(raw))
    with contextlib.suppress(httpx.RemoteProtocolError):
        first, second = await mesh.get(path), await mesh.get(path)
        assert first.status_code == second.status_code
        assert first.content == second.content or second.status_code >= 500
        if first.status_code in (206, 304):
            assert not verdict(second).hit


async def test_more_body_than_was_announced_is_not_taken_for_an_answer(mesh, origin, path):
    extra = head([FRESH, ("content-length", "2")]) + b"okHTTP/1.1 200 x\r\ncontent-length: 4\r\n\r\nevil"
    origin.script(path, cut(extra))
    for _ in range(2):
        answer = await mesh.get(path)
        assert answer.content in (b"ok", b"") or answer.status_code >= 500
    assert (await mesh.get(f"{path}/other")).content == f"{path}/other 1".encode()


async def test_what_the_origin_says_to_its_hop_alone_goes_to_nobody(mesh, origin, path):
    said = [FRESH, ("connection", "X-Hop, etag"), ("x-hop", "1"), ("x-own", "1"), ("etag", '"e"')]
    origin.script(path, reply(200, said, b"right"))
    for stored in (True, False):
        answer = await mesh.get(path)
        assert verdict(answer).stored is stored
        assert "x-hop" not in answer.headers
        # Meant for everybody, whatever the sender thinks.
        assert (answer.headers["x-own"], answer.headers["etag"]) == ("1", '"e"')
    assert verdict(answer).hit
