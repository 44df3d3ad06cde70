"""Attempts to have one's own doing stored for others: by headers that no key shows, by paths read in two ways."""

from __future__ import annotations

import re

import pytest
from running_mesh import verdict
from scripted_origin import Wire, reply

from meshcache.engine.key import RETARGETING

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

FRESH = ("cache-control", "max-age=60")


def reflects(origin, path, name):
    """The origin believes what `name` says, as many do, and says nothing in `vary`."""

    async def step(asked, wire: Wire):
        await wire.send(reply(200, [FRESH], f"<script src=//{asked.get(name) or 'mine'}/x.js>".encode()))

    origin.script(path, step)


@pytest.mark.parametrize("field", sorted(RETARGETING))
async def test_what_a_header_does_to_an_answer_stays_with_who_sent_it(mesh, origin, path, field):
    reflects(origin, path, field)
    before = origin.count(path)
    evil = "host=evil.example" if field == "forwarded" else "evil.example"
    poisoned = await mesh.get(path, {field: evil})
    clean = await mesh.get(path)
    assert "evil" not in clean.text
    for spelling in (field.upper(), field.title()):
        again = await mesh.get(path, {spelling: evil})
        assert again.text == poisoned.text
    assert "evil" not in (await mesh.get(path, {f"{field}-": evil, f"x-{field}": evil})).text
    assert origin.count(path) > before


@pytest.mark.parametrize("field", ["hx-request", "turbo-frame", "x-inertia", "x-pjax", "x-requested-with"])
async def test_a_fragment_is_not_given_for_the_page(mesh, hot, origin, path, field):
    async def step(asked, wire: Wire):
        await wire.send(reply(200, [FRESH], b"part" if asked.get(field) else b"page"))

    origin.script(path, step)
    for each in (mesh, hot):
        for _ in range(4):
            assert (await each.get(path, {field: "true"})).text == "part"
            assert (await each.get(path)).text == "page"


async def test_an_underscore_makes_no_difference(mesh, origin, path):
    async def step(asked, wire: Wire):
        found = {name.replace("_", "-"): value for name, value in asked.fields}
        await wire.send(reply(200, [FRESH], found.get("x-original-url", "mine").encode()))

    origin.script(path, step)
    for name in ("x_original_url", "X_Original-Url", "x-original_url"):
        assert (await mesh.get(path, {name: "evil"})).text == "evil"
        assert (await mesh.get(path)).text == "mine"


async def test_a_header_sent_twice_is_not_the_one_sent_once(mesh, origin, path):
    reflects(origin, path, "x-original-url")
    await mesh.get(path, [("x-original-url", "/a"), ("x-original-url", "/evil")])
    assert "evil" not in (await mesh.get(path, {"x-original-url": "/a"})).text
    assert "evil" not in (await mesh.get(path)).text


async def test_a_body_and_another_method_poison_nothing(mesh, origin, path):
    async def step(asked, wire: Wire):
        text = asked.body.decode() or asked.get("x-http-method-override") or "clean"
        await wire.send(reply(200, [FRESH], text.encode()))

    origin.script(path, step)
    host = b"host: 127.0.0.1\r\n"
    await mesh.raw(b"GET %b HTTP/1.1\r\n%bcontent-length: 4\r\nconnection: close\r\n\r\nevil" % (path.encode(), host))
    await mesh.get(path, {"x-http-method-override": "evil"})
    answer = await mesh.get(path)
    assert (answer.text, verdict(answer).hit) == ("clean", False)


def targets(base: str) -> list[str]:
    """Paths of which two readers may make two things."""
    return [
        f"{base}/a/b",
        f"{base}/a//b",
        f"{base}//a/b",
        f"{base}/a/b/",
        f"{base}/a/b//",
        f"{base}/a%2Fb",
        f"{base}/a%2fb",
        f"{base}/a%5Cb",
        f"{base}/a%5cb",
        f"{base}/a\\b",
        f"{base}/A/b",
        f"{base}/a/%62",
        f"{base}/a/%42",
        f"{base}/%61/b",
        f"{base}/a/./b",
        f"{base}/a/x/../b",
        f"{base}/a/%2e/b",
        f"{base}/a/x/%2e%2e/b",
        f"{base}/a/x/%2E./b",
        f"{base}/a/x/..%2fb",
        f"{base}/a/x/..%2Fb",
        f"{base}/a/x%2f..%2fb",
        f"{base}/a/x/%252e%252e/b",
        f"{base}/a/x/..;/b",
        f"{base}/a/x/..;v=1/b",
        f"{base}/a/.;/b",
        f"{base}/a;v=1/b",
        f"{base}/a/b;v=1",
        f"{base}/a/b;",
        f"{base}/a/b%3b",
        f"{base}/a/b%3B",
        f"{base}/a/b?",
        f"{base}/a/b??",
        f"{base}/a/b%3f",
        f"{base}/a/b%3F",
        f"{base}/a/b%23",
        f"{base}/a/b%00",
        f"{base}/a/b%0a",
        f"{base}/a/b%0d%0ax",
        f"{base}/a/b%20",
        f"{base}/a/b+",
        f"{base}/a/b.",
        f"{base}/a/b%2e",
        f"{base}/a/b...",
        f"{base}/a/%c0%ae%c0%ae/b",
        f"{base}/a/b%7e",
        f"{base}/a/b~",
        f"{base}/a/b%7F",
        f"{base}/a/b%25",
        f"{base}/a/b%",
        f"{base}/a/b%zz",
        f"{base}/a/b%u002e",
        f"{base}/a/b?x=1#y",
        f"{base}/a/b#y",
        f"{base}/../{base.rpartition('/')[2]}/a/b",
        f"{base}/a/b/..",
        f"{base}/a/b/.",
        f"{base}/a/b?x=%2e%2e/",
        f"{base}/a/b?x=1&x=2",
        f"{base}/a/b?x=2&x=1",
        f"{base}/a/b?x=1;x=2",
    ]


async def test_answers_to_two_paths_are_never_swapped(mesh, origin, name):
    """Whatever is asked, the answer is the one that the origin gives to what Envoy sends it for that."""
    asked: dict[str, str] = {}

    async def sent(target: str) -> tuple[int, str]:
        raw = await mesh.raw(f"GET {target} HTTP/1.1\r\nhost: swap.example\r\nconnection: close\r\n\r\n".encode())
        head, _, body = raw.partition(b"\r\n\r\n")
        return int(head[9:12]), body.decode("latin-1").rpartition(" ")[0]

    # The default policy gives every answer a lifetime; the origin's answer names the path that it got.
    everything = targets(f"/greedy/{name}")
    for target in everything:
        status, path = await sent(target)
        assert status in (200, 400), (target, status)
        if status == 200:
            asked[target] = path
            assert origin.asked(path)[-1].target.partition("?")[0] == path
    assert len(asked) >= len(everything) - 8
    for target in reversed(everything):
        if target in asked:
            assert (await sent(target))[1] == asked[target], target
    # Envoy resolves dots and needless escapes, for the cache and for the origin; nothing else is made the same.
    same = {target for target, path in asked.items() if path == f"/greedy/{name}/a/b" and "?" not in target}
    dots = ["a/./b", "a/.;/b", "a/%2e/b", "a/x/../b", "a/x/..;/b", "a/x/..;v=1/b", "a/x/%2e%2e/b", "a/x/%2E./b"]
    written = ["a/b", "%61/b", "a/%62", "a\\b", *dots, f"../{name}/a/b"]
    assert same <= {f"/greedy/{name}/{rest}" for rest in written}


async def test_the_host_of_an_absolute_target_is_the_one_that_counts(mesh, origin, path):
    async def step(asked, wire: Wire):
        await wire.send(reply(200, [FRESH], (asked.get("x-forwarded-host") or "none").encode()))

    origin.script(path, step)

    async def body(line: str, host: str) -> bytes:
        raw = await mesh.raw(f"GET {line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        return raw.partition(b"\r\n\r\n")[2]

    for _ in range(2):
        assert await body(f"http://one.example{path}", "two.example") == b"one.example"
        assert await body(path, "two.example") == b"two.example"
        assert await body(path, "one.example") == b"one.example"
    assert origin.count(path) == 2


async def test_a_path_below_one_route_does_not_get_another_routes_lifetime(mesh, origin, name):
    """`/greedy` gives lifetimes to everything; an origin that decodes more would answer for `/plain` there."""
    for trick in (
        "..%2fplain%2f",
        "..%3b/plain/",
        "%252e%252e/plain/",
        "x%2f..%2f..%2fplain%2f",
        "%c0%ae%c0%ae/plain/",
    ):
        target = f"/greedy/{trick}{name}"
        for _ in range(2):
            raw = await mesh.raw(f"GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
            assert raw.startswith(b"HTTP/1.1 200"), raw[:100]
            assert not re.search(rb"meshcache; hit", raw)


async def test_pages_of_one_origin_do_not_get_the_answer_for_another(mesh, origin, path):
    async def step(asked, wire: Wire):
        asking = asked.get("origin")
        allowed = [("access-control-allow-origin", asking)] if asking else []
        await wire.send(reply(200, [FRESH, *allowed], b"data"))

    origin.script(path, step)
    for asking in ("https://evil.example", "https://good.example") * 2:
        answer = await mesh.get(path, {"origin": asking})
        assert answer.headers["access-control-allow-origin"] == asking
    assert origin.count(path) == 2


@pytest.mark.parametrize(
    "trick", ["/x.css", ";.css", ";x.js", "%23.css", "%3f.png", "%2fx.woff2", "%0a.css", "/x.js;v=1"]
)
async def test_a_page_that_looks_like_a_file_is_not_kept_for_the_one_who_lures(mesh, origin, name, trick):
    """The application minds only the beginning of the path, and its web server gives lifetimes by extension."""
    target = f"/greedy/{name}{trick}"

    async def account(asked, wire: Wire):
        fields = [("content-type", "text/html"), ("cache-control", "public, max-age=60")]
        await wire.send(reply(200, fields, f"secret of {asked.get('cookie') or 'nobody'}".encode()))

    async def asks(cookie: bytes) -> bytes:
        head = f"GET {target} HTTP/1.1\r\nhost: lure.example\r\nconnection: close\r\n".encode()
        return (await mesh.raw(head + cookie + b"\r\n")).partition(b"\r\n\r\n")[2]

    origin.script(target, account)
    origin.script(target.partition(";")[0], account)
    assert b"alice" in await asks(b"cookie: sid=alice\r\n")
    assert b"alice" not in await asks(b"")
    assert b"alice" not in await asks(b"cookie: sid=mallory\r\n")


async def test_a_visitors_page_is_not_kept_for_others_by_a_made_up_lifetime(mesh, origin, name):
    path = f"/greedy/{name}"

    async def page(asked, wire: Wire):
        await wire.send(reply(200, [("set-cookie", "seen=1")], f"for {asked.get('cookie') or 'nobody'}".encode()))

    origin.script(path, page)
    for visitor in ("sid=alice", "sid=bob", "sid=alice"):
        answer = await mesh.get(path, {"cookie": visitor})
        assert answer.text == f"for {visitor}"
        assert "cookie" in verdict(answer).detail
    assert (await mesh.get(path)).text == "for nobody"
    assert origin.count(path) == 4
