"""Paths that mean one thing to the cache and another to the origin."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.engine.paths import ambiguous, as_handed_on, type_mismatch


@pytest.mark.parametrize(
    "path",
    [
        "/static/../account",
        "/static/./a",
        "/static/..",
        "/static/..%2faccount",
        "/static/..%2Faccount",
        "/static/%2e%2e/account",
        "/static/.%2E/account",
        "/static/%2e%2e%2faccount",
        "/static/%252e%252e/account",
        "/static/%252e%252e%252faccount",
        "/static/..%5caccount",
        "/static/..%255caccount",
        "/static\\..\\account",
        "/static/..;/account",
        "/static/..;a=b/account",
        "/static/.;/account",
        "/static/..%3b/account",
        "/static/%2e%2e%3bx/account",
        "/static%2f..%2faccount",
        "/static/%c0%ae%c0%ae/account",
        "/static/..%c0%afaccount",
        "/account%00.css",
        "/account%0a.css",
        "/account%0d%0ax",
        "/account%2500.css",
        "/account%7f",
        "/a\x0bb",
        "/static/..?x",
    ],
)
def test_what_an_origin_may_read_otherwise(path: str) -> None:
    assert ambiguous(path)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a",
        "/a/b/c.css",
        "/a/",
        "//a//b",
        "/a?x=/../y",
        "/a?x=..%2f",
        "/a?x=%00",
        "/packages/group%2Fname",
        "/@scope%2fname",
        "/caf%C3%A9",
        "/caf%e9",
        "/%c0",
        "/100%25",
        "/100%",
        "/%zz",
        "/a%3Fb",
        "/a%23b",
        "/a;v=1",
        "/a;v=1/b",
        "/.well-known/acme",
        "/...",
        "/..a/b",
        "/a../b",
        "/a%2e%2e/b",
        "/a\\b",
        "/v1/models/a:b",
    ],
)
def test_what_every_origin_reads_the_same(path: str) -> None:
    assert not ambiguous(path)


@given(st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/?%;\\"), min_size=1)))
def test_a_segment_of_dots_is_found_however_it_is_written(segments: list[str]) -> None:
    hidden = "/" + "/".join([*segments, "x"])
    assert ambiguous(hidden) == any(segment in (".", "..") for segment in segments)
    for depth in range(2):
        dots = "%2e%2e" if not depth else quote("%2e%2e")
        assert ambiguous(f"{hidden}/{dots}/y")


@pytest.mark.parametrize("content_type", ["text/html", "text/html; charset=utf-8", "TEXT/HTML", "application/json"])
@pytest.mark.parametrize(
    "path",
    [
        "/account/x.css",
        "/account/profile.JS",
        "/account.png",
        "/account;.css",
        "/account;x.css",
        "/account%3b.css",
        "/account%23.css",
        "/account%3f.css",
        "/account%253f.css",
        "/account%2fx.css",
        "/account/%78.c%73s",
        "/account/.css",
        "/account/x.css/",
        "/account/x.css;jsessionid=1",
        "/account/x.css?next=1",
        "/account/x.woff2",
    ],
)
def test_a_page_under_the_name_of_a_file(path: str, content_type: str) -> None:
    assert type_mismatch(path, content_type)


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/a.css", "text/css"),
        ("/a.js", "application/javascript"),
        ("/a.js", "text/javascript; charset=utf-8"),
        ("/a.jpg", "image/webp"),
        ("/a.gif", "video/webm"),
        ("/a.png", "application/octet-stream"),
        ("/a.svg", "image/svg+xml"),
        ("/a.svg", "text/xml"),
        ("/a.woff2", "font/woff2"),
        ("/a.css", None),
        ("/a.css", ""),
        ("/account", "text/html"),
        ("/a.html", "text/html"),
        ("/a.json", "application/json"),
        ("/a.txt", "text/plain"),
        ("/chart.js/latest", "application/json"),
        ("/account?x=.css", "text/html"),
        ("/v1.2/users", "application/json"),
        ("/", "text/html"),
    ],
)
def test_files_and_pages_under_their_own_names(path: str, content_type: str | None) -> None:
    assert not type_mismatch(path, content_type)


@pytest.mark.parametrize(
    "content_type",
    ["application/problem+json", "application/xml", "text/plain", "text/event-stream"],
)
def test_data_of_any_kind_is_no_style_sheet(content_type: str) -> None:
    assert type_mismatch("/me/x.css", content_type)


@pytest.mark.parametrize(
    ("written", "handed_on"),
    [
        ("/", "/"),
        ("/a//b/?/../%7E", "/a//b/?/../%7E"),
        ("/%41%2d%5A%5f%7e%30", "/A-Z_~0"),
        ("/%2F%25%7F%40%5B%60%7B%3a", "/%2F%25%7F%40%5B%60%7B%3a"),
        ("/a/./b/../c", "/a/c"),
        ("/a/%2e%2E/b", "/b"),
        ("/a//../b", "/a/b"),
        ("/a/..", "/"),
        ("/a/b/.", "/a/b/"),
        ("/../../a", "/a"),
        ("/a\\b", "/a/b"),
        ("/a.b/..c/.d", "/a.b/..c/.d"),
    ],
)
def test_paths_as_envoy_hands_them_on(written: str, handed_on: str) -> None:
    assert as_handed_on(written) == handed_on
    assert as_handed_on(handed_on) == handed_on
